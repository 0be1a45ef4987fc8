"""A lake whose releases contain only the tables of room state."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables
from tests.support.state_rooms import State, resolve_state

STATE_TABLES = ("state_groups", "state_group_edges", "state_groups_state")
TABLES = (*STATE_TABLES, "event_to_state_groups")

DAY = datetime(2026, 11, 17, tzinfo=UTC)


@dataclass
class StateReleases:
    """Publish the tables of the source as releases of a lake. ``count``: number of the latest release."""

    settings: Settings
    count: int = 0

    def __post_init__(self) -> None:
        self.main = str(self.settings.synapse_dsn)
        self.dsn = self.settings.synapse_state_dsn or self.main
        self.catalog = open_catalog(self.settings)
        declared = catalogue.load_catalogue()
        selected_tables = tuple(table for table in declared.tables if table.name in TABLES)
        tables.ensure_tables(self.catalog, declared.model_copy(update={"tables": selected_tables}))

    def publish(self) -> None:
        """Publish the current rows of the source as a release."""
        self.count += 1
        snapshot_ids = []
        with psycopg.connect(self.dsn) as source, psycopg.connect(self.main) as main:
            for name in TABLES:
                schema = self.catalog.load_table(f"bronze.{name}").schema().as_arrow()
                database = source if name in STATE_TABLES else main
                rows = database.execute(f"select {', '.join(schema.names)} from {name}".encode()).fetchall()
                snapshot_ids.append(
                    self._replace(f"bronze.{name}", [dict(zip(schema.names, row, strict=True)) for row in rows])
                )
            positions, intervals = _resolve(source)
        snapshot_ids += [
            self._replace("silver.state_positions", positions),
            self._replace("silver.state_intervals", intervals),
        ]
        run = Run(f"run {self.count}", DAY + timedelta(days=self.count), DAY + timedelta(days=self.count + 1))
        release = {"release": self.count, "branch": run.branch, "tag": run.tag, "server_name": "example.org"}
        counts = {"checks_passed": 1, "checks_warned": 0, "published_at": run.end, "accepted_at": run.end}
        contents: dict[str, Iterable[object]] = {"tables": snapshot_ids, "views": [], "positions": []}
        store.append_audit_rows(self.catalog, "audit.releases", [release | counts | contents], run)

    def _replace(self, name: str, rows: list[dict[str, Any]]) -> tuple[str, int]:
        table = self.catalog.load_table(name)
        table.overwrite(pa.Table.from_pylist(rows, table.schema().as_arrow()))
        return name, table.refs()["main"].snapshot_id


def _resolve(source: psycopg.Connection[Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a position for each state group, and an interval of one position for each entry of its state."""
    edges = dict(source.execute("select state_group, prev_state_group from state_group_edges"))
    deltas: dict[int, State] = defaultdict(dict)
    for group, type_, key, event in source.execute(
        "select state_group, type, state_key, event_id from state_groups_state"
    ):
        deltas[group][type_, key] = event
    positions, intervals = [], []
    for position, (group, room) in enumerate(
        source.execute("select id, room_id from state_groups order by id").fetchall()
    ):
        state = resolve_state(edges, deltas, group)
        digest = hash(frozenset(state.items()))
        positions.append({"room_id": room, "state_group": group, "position": position, "digest": digest})
        at = {"room_id": room, "first_position": position, "last_position": position}
        intervals += [
            at | {"type": type_, "state_key": key, "event_id": event} for (type_, key), event in state.items()
        ]
    return positions, intervals
