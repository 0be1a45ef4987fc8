"""The progress tables: the three tables of Synapse's own compressor, and one of the lakehouse.

Levels are saved in the tables of Synapse's compressor, so that an operator can switch between the two compressors. The
table of the lakehouse contains the partly written chunk of a room, and the last group that ``best`` compressed.
"""

import re
from collections.abc import Iterator
from typing import Final

PROGRESS_TABLES: Final = {
    "state_compressor_state": "room_id text NOT NULL, level_num int NOT NULL, max_size int NOT NULL,"
    " current_length int NOT NULL, current_head bigint, UNIQUE (room_id, level_num)",
    "state_compressor_progress": "room_id text PRIMARY KEY, last_compressed bigint NOT NULL",
    "state_compressor_total_progress": "lock char(1) NOT NULL DEFAULT 'X' UNIQUE,"
    " lowest_uncompressed_group bigint NOT NULL, CHECK (lock = 'X')",
    "lakehouse_compressor_progress": "room_id text PRIMARY KEY, strategy text NOT NULL, last_compressed bigint,"
    " chunk_end bigint, written_up_to bigint NOT NULL",
}
"""Columns of each table; the first three tables are those of Synapse's compressor."""

WRITTEN_TABLES: Final = tuple(name for name in PROGRESS_TABLES if name != "state_compressor_total_progress")
"""Tables that a compression writes. The total is left out: Synapse's compressor uses it only as a lower limit."""

REFERENCE_TABLES: Final = tuple(name for name in PROGRESS_TABLES if name.startswith("state_compressor_"))

CREATE_STATEMENTS: Final = (
    *(f"CREATE TABLE IF NOT EXISTS {name} ({columns})" for name, columns in PROGRESS_TABLES.items()),
    "CREATE INDEX IF NOT EXISTS state_compressor_state_index ON state_compressor_state (room_id)",
    "INSERT INTO state_compressor_total_progress (lowest_uncompressed_group) VALUES (0) ON CONFLICT (lock) DO NOTHING",
)

PRIVILEGES: Final = {
    # FOR KEY SHARE requires UPDATE of a column; Synapse does not use this column.
    "state_groups": "SELECT, UPDATE (event_id)",
    "state_group_edges": "SELECT, INSERT, DELETE",
    "state_groups_state": "SELECT, INSERT, DELETE",
    "event_to_state_groups": "SELECT",
    "state_groups_persisting": "SELECT",
    "state_groups_pending_deletion": "SELECT, INSERT",
    "state_compressor_total_progress": "SELECT",
    "schema_version": "SELECT (version)",
    "schema_compat_version": "SELECT (compat_version)",
} | dict.fromkeys(WRITTEN_TABLES, "SELECT, INSERT, UPDATE, DELETE")
"""Privileges by table; no other object is used."""


def list_privileges() -> Iterator[tuple[str, str, tuple[str, ...] | None]]:
    """Yield each of :data:`PRIVILEGES`: privilege, table, and the columns that it is limited to."""
    for table, granted in PRIVILEGES.items():
        for privilege, column in re.findall(r"(\w+)(?: \((\w+)\))?", granted):
            yield privilege, table, (column,) if column else None
