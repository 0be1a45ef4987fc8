"""A lake whose releases contain only the tables of room state."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
import pyarrow as pa

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables

TABLES = ("state_groups", "state_group_edges", "state_groups_state", "event_to_state_groups")

DAY = datetime(2026, 11, 17, tzinfo=UTC)


@dataclass
class StateReleases:
    """Publishes the tables of the source as releases of a lake."""

    settings: Settings
    count: int = 0

    def __post_init__(self) -> None:
        self.dsn = str(self.settings.synapse_dsn)
        self.catalog = open_catalog(self.settings)
        declared = catalogue.load_catalogue()
        selected_tables = tuple(table for table in declared.tables if table.name in TABLES)
        tables.ensure_tables(self.catalog, declared.model_copy(update={"tables": selected_tables}))

    def publish(self) -> None:
        """Add a release with the rows of this moment."""
        self.count += 1
        run = Run(f"run {self.count}", DAY + timedelta(days=self.count), DAY + timedelta(days=self.count + 1))
        snapshots = []
        with psycopg.connect(self.dsn) as source:
            for name in TABLES:
                table = self.catalog.load_table(f"bronze.{name}")
                schema = table.schema().as_arrow()
                rows = source.execute(f"select {', '.join(schema.names)} from {name}".encode()).fetchall()
                table.overwrite(
                    pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
                )
                current = table.refs()["main"]
                snapshots.append((f"bronze.{name}", current.snapshot_id))
        release = {"release": self.count, "branch": run.branch, "tag": run.tag, "server_name": "example.org"}
        counts = {"checks_passed": 1, "checks_warned": 0, "published_at": run.end, "tables": snapshots}
        empty: dict[str, Iterable[object]] = {"views": [], "positions": []}
        store.append_audit_rows(self.catalog, "audit.releases", [release | counts | empty], run)
