"""What a copy writes down: the source's snapshot, and the tables that are counted and never copied."""

from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.row_counts import count_stream_ids
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.spark_app import SparkApp
from synapse_lakehouse.streams.positions.writers import default_writer, read_configured_writers


def snapshot_columns(snapshot: PostgresSnapshot) -> dict[str, Any]:
    """Columns that tell from which snapshot of which database something was copied."""
    return {"snapshot_xmin": snapshot.xmin_horizon, "snapshot_xmax": snapshot.xmax} | vars(snapshot.wal_position)


def record_snapshot(app: SparkApp, snapshot: PostgresSnapshot, began_at: datetime) -> None:
    """Write the state of the source to ``audit.snapshots``.

    :param began_at: when the attempt at the run began: what was written down of the run earlier is of another one.
    """
    row = {
        "branch": app.run.branch,
        "taken_at": snapshot.taken_at,
        "server_name": app.settings.synapse_server_name,
        "server_version": snapshot.server_version,
        "schema_version": snapshot.schema_version,
        "in_recovery": snapshot.in_recovery,
        "sequences": [vars(sequence) for sequence in snapshot.sequences],
        "drifted": sorted(snapshot.drifted_tables.items()),
        "novelties": list(snapshot.unknown_objects),
        "began_at": began_at,
    }
    store.append_audit_rows(app.catalog, "audit.snapshots", [row | snapshot_columns(snapshot)], app.run)


def record_measured_tables(app: SparkApp, catalogue: Catalogue, connection: Connection) -> None:
    """Count the tables that are never copied, inside the same snapshot, into ``audit.stream_facts``."""
    now = datetime.now(UTC)
    writers = _writers(app, catalogue, connection)
    rows = []
    for table in catalogue.measured_tables():
        for stream, column in table.streams.items():
            by_writer = count_stream_ids(connection, table, column)
            rows_by_writer = Counter[str]()
            for one in by_writer:
                rows_by_writer[one.writer or default_writer(writers[stream])] += one.rows
            firsts = [one.first_id for one in by_writer if one.first_id is not None]
            lasts = [one.last_id for one in by_writer if one.last_id is not None]
            rows.append(
                {
                    "stream": stream,
                    "table_name": table.name,
                    "rows": sum(one.rows for one in by_writer),
                    "null_ids": sum(one.null_ids for one in by_writer),
                    "first_id": min(firsts, default=None),
                    "last_id": max(lasts, default=None),
                    "rows_by_writer": sorted(rows_by_writer.items()),
                    "measured_at": now,
                }
            )
    store.append_audit_rows(app.catalog, "audit.stream_facts", rows, app.run)


def _writers(app: SparkApp, catalogue: Catalogue, connection: Connection) -> dict[str, Collection[str]]:
    """By stream, the writers that are configured, or else those that have a position."""
    known = read_configured_writers(catalogue, app.settings.lakehouse_stream_writers, app.settings.synapse_config)
    stored: dict[str | None, set[str]] = {}
    for name, writer in connection.execute("select stream_name, instance_name from stream_positions"):
        stored.setdefault(name, set()).add(writer)
    return {one.name: known.get(one.name) or stored.get(one.stream_positions, set()) for one in catalogue.streams}
