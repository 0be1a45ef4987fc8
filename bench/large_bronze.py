"""Bronze of a large homeserver, written to a lake without Synapse or its database."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from bench.large_rooms import Numbers, Server
from synapse_lakehouse import catalogue
from synapse_lakehouse.iceberg.write import tables

SERVER_NAME: Final = "bench.example"

_SQL: Final = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
_OF_EVENTS: Final = (
    "events", "event_json", "event_to_state_groups", "rejections", "redactions", "room_memberships", "rooms",
)  # fmt: skip
_OF_GROUPS: Final = ("state_groups", "state_group_edges")
_OF_USERS: Final = ("users", "ignored_users", "erased_users")
TABLES: Final = (*_OF_EVENTS, *_OF_GROUPS, "state_groups_state", *_OF_USERS)
"""Tables of bronze that have rows."""

_ROWS_AT_ONCE: Final = 500_000


def fill(lake: Catalog, server: Server, events: range) -> int:
    """Append to main of bronze what came with the events of these numbers; how many rows.

    Users, and whom they ignore, come with the first event.
    """
    declared = catalogue.load_catalogue()
    tables.ensure_tables(lake, declared)
    written = 0
    with duckdb.connect() as connection:
        connection.execute(f"create macro local_users() as {int(server.local_users)}")
        connection.register("local_members", pa.table({"room": np.arange(server.rooms), "here": server.local}))
        for numbers, of_numbers in _parts(server, events):
            for name, part in numbers.items():
                connection.register(name, part)
            connection.execute(_SQL)
            for name in of_numbers:
                rows, schema = connection.table(name).to_arrow_table(), tables.get_arrow_schema(declared.table(name))
                written += rows.num_rows
                if rows.num_rows:
                    lake.load_table(f"bronze.{name}").append(_complete(rows, schema))
    return written


def _complete(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    missing = [one for one in schema if one.name not in rows.column_names]
    for one in missing:
        rows = rows.append_column(one, pa.nulls(len(rows), one.type))
    return rows.select(schema.names).cast(schema)


def _parts(server: Server, events: range) -> Iterator[tuple[dict[str, pa.Table], tuple[str, ...]]]:
    """What :data:`_SQL` works on, in parts, each with the tables that it makes of them."""
    nothing = np.zeros(0, np.int64)

    def part(events: Numbers = nothing, groups: Numbers = nothing, rows: Numbers = nothing) -> dict[str, pa.Table]:
        return {
            "fresh": _table(server.events, events, n=events),
            "fresh_groups": _table(server.groups, groups, id=groups + 1),
            "fresh_rows": _table(server.rows, rows),
        }

    if not events.start:
        yield part(), _OF_USERS
    for numbers in _slices(np.arange(events.start, events.stop), _ROWS_AT_ONCE):
        yield part(events=numbers), _OF_EVENTS
    groups = np.flatnonzero((server.groups["event"] >= events.start) & (server.groups["event"] < events.stop))
    yield part(groups=groups), _OF_GROUPS
    for rows in _slices(np.flatnonzero(np.isin(server.rows["group"], groups + 1)), 4 * _ROWS_AT_ONCE):
        yield part(rows=rows), ("state_groups_state",)


def _slices(numbers: Numbers, size: int) -> Iterator[Numbers]:
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def _table(columns: dict[str, Numbers], chosen: Numbers, **more: Numbers) -> pa.Table:
    return pa.table({name: column[chosen] for name, column in columns.items()} | more)
