"""Where progress is kept: the tables of Synapse's own compressor, and one beside them for what these lack.

Levels are kept in its tables as it keeps them, so that one can go over and back. Ours says which chunk of a room is
stored in part, and up to where rooms were brought to the fewest rows.
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
"""Columns of each table; the first three are the reference's own."""

WRITTEN_TABLES: Final = tuple(name for name in PROGRESS_TABLES if name != "state_compressor_total_progress")
"""Those that a compression writes. The reference looks for work from the total on, which may well lag behind."""

REFERENCE_TABLES: Final = tuple(name for name in PROGRESS_TABLES if name.startswith("state_compressor_"))

CREATE_STATEMENTS: Final = (
    *(f"CREATE TABLE IF NOT EXISTS {name} ({columns})" for name, columns in PROGRESS_TABLES.items()),
    "CREATE INDEX IF NOT EXISTS state_compressor_state_index ON state_compressor_state (room_id)",
    "INSERT INTO state_compressor_total_progress (lowest_uncompressed_group) VALUES (0) ON CONFLICT (lock) DO NOTHING",
)

PRIVILEGES: Final = {
    # FOR KEY SHARE takes the right to update a column; Synapse itself relies on this one for nothing.
    "state_groups": "SELECT, UPDATE (event_id)",
    "state_group_edges": "SELECT, INSERT, DELETE",
    "state_groups_state": "SELECT, INSERT, DELETE",
    "event_to_state_groups": "SELECT",
    "state_groups_persisting": "SELECT",
    "state_groups_pending_deletion": "SELECT, INSERT",
    "state_compressor_total_progress": "SELECT",
} | dict.fromkeys(WRITTEN_TABLES, "SELECT, INSERT, UPDATE, DELETE")
"""By table; no other object is touched."""


def list_privileges() -> Iterator[tuple[str, str, tuple[str, ...] | None]]:
    """:data:`PRIVILEGES` one by one: privilege, table, and the columns that it is limited to."""
    for table, rights in PRIVILEGES.items():
        for privilege, column in re.findall(r"(\w+)(?: \((\w+)\))?", rights):
            yield privilege, table, (column,) if column else None
