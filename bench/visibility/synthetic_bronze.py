"""Write the bronze tables of a synthetic homeserver to a lake."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from bench.visibility.synthetic_rooms import Numbers, SyntheticServer
from sample.releases import load_releases
from synapse_lakehouse import catalogue
from synapse_lakehouse.iceberg.write import tables

SERVER_NAME: Final = "bench.example"

_SQL: Final = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
_EVENT_TABLES: Final = (
    "events", "event_json", "event_to_state_groups", "rejections", "redactions", "room_memberships", "rooms",
)  # fmt: skip
_GROUP_TABLES: Final = ("state_groups", "state_group_edges")
_USER_TABLES: Final = ("users", "ignored_users", "erased_users")
_GRAPH_TABLES: Final = ("event_edges", "event_auth", "state_events", "current_state_delta_stream")
_CURRENT_TABLES: Final = (
    "current_state_events", "event_forward_extremities", "local_current_membership", "room_stats_current",
    "sliding_sync_joined_rooms", "sliding_sync_membership_snapshots",
)  # fmt: skip
TABLES: Final = (*_EVENT_TABLES, *_GROUP_TABLES, "state_groups_state", *_USER_TABLES)
"""Bronze tables that visibility needs."""

_BATCH_ROWS: Final = 500_000


def fill(lake: Catalog, server: SyntheticServer, events: range, branch: str) -> int:
    """Append the rows of the events with the numbers ``events`` to ``branch`` of bronze; return the number of rows.

    Users, ignored users and the schema changes of Synapse's newest release are written with the first event. Tables of
    the current state are replaced.
    """
    declared = catalogue.load_catalogue()
    tables.ensure_tables(lake, declared)
    row_count = 0
    with duckdb.connect() as connection:
        connection.execute(f"create macro local_users() as {int(server.local_users)}")
        connection.register("local_members", pa.table(
            {"room": np.arange(server.rooms), "local_count": server.local, "creation": server.creations}
        ))  # fmt: skip
        connection.register("schema_changes", pa.table({"file": sorted(load_releases()[-1].deltas)}))
        for inputs, table_names in _batches(server, events):
            for name, part in inputs.items():
                connection.register(name, part)
            connection.execute(_SQL)
            for name in table_names:
                rows, schema = connection.table(name).to_arrow_table(), tables.get_arrow_schema(declared.table(name))
                row_count += rows.num_rows
                if name in _CURRENT_TABLES or rows.num_rows:
                    table = _load_table(lake, f"bronze.{name}", branch)
                    write = table.overwrite if name in _CURRENT_TABLES else table.append
                    write(_add_missing_columns(rows, schema), branch=branch)
    return row_count


def _load_table(lake: Catalog, name: str, branch: str) -> Table:
    """Return a table; create its ``branch`` if necessary."""
    table = lake.load_table(name)
    if branch not in table.refs():
        if table.current_snapshot() is None:
            table.append(table.schema().as_arrow().empty_table())
        head = table.current_snapshot()
        assert head
        table.manage_snapshots().create_branch(head.snapshot_id, branch).commit()
    return table


def _add_missing_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows.select(schema.names).cast(schema)


def _batches(server: SyntheticServer, events: range) -> Iterator[tuple[dict[str, pa.Table], tuple[str, ...]]]:
    """Yield the inputs of :data:`_SQL` in batches, each with the names of the tables that :data:`_SQL` generates."""
    empty = np.zeros(0, np.int64)

    def batch(
        events: Numbers = empty, groups: Numbers = empty, rows: Numbers = empty, **current: Numbers
    ) -> dict[str, pa.Table]:
        flags = {f"is_{name}": np.isin(events, current.get(name, empty)) for name in ("state", "extremity", "last")}
        return {
            "current_events": pa.table({"n": events, **flags}),
            "fresh": _table(server.events, events, n=events),
            "fresh_groups": _table(server.groups, groups, id=groups + 1),
            "fresh_rows": _table(server.rows, rows),
        }

    if not events.start:
        yield batch(), (*_USER_TABLES, "applied_schema_deltas")
    for numbers in _slices(np.arange(events.start, events.stop), _BATCH_ROWS):
        yield batch(events=numbers), (*_EVENT_TABLES, *_GRAPH_TABLES)
    groups = np.flatnonzero((server.groups["event"] >= events.start) & (server.groups["event"] < events.stop))
    yield batch(groups=groups), _GROUP_TABLES
    for rows in _slices(np.flatnonzero(np.isin(server.rows["group"], groups + 1)), 4 * _BATCH_ROWS):
        yield batch(rows=rows), ("state_groups_state",)
    current = server.find_current(events.stop)
    yield batch(events=np.unique(np.concatenate(list(current.values()))), **current), _CURRENT_TABLES


def _slices(numbers: Numbers, size: int) -> Iterator[Numbers]:
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def _table(columns: dict[str, Numbers], indexes: Numbers, **extra_columns: Numbers) -> pa.Table:
    return pa.table({name: column[indexes] for name, column in columns.items()} | extra_columns)
