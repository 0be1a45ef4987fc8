"""Audit rows of a copy: the PostgreSQL snapshot, and the tables that are counted and never copied."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue, load_catalogue
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.row_counts import count_stream_ids
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.spark_app import SparkApp
from synapse_lakehouse.streams.positions.configured_writers import default_writer, read_configured_writers


def snapshot_columns(snapshot: PostgresSnapshot) -> dict[str, Any]:
    """Return the audit columns that identify the PostgreSQL snapshot."""
    return {"snapshot_xmin": snapshot.xmin_horizon, "snapshot_xmax": snapshot.xmax} | vars(snapshot.wal_position)


def record_snapshots(app: SparkApp, snapshots: Sequence[PostgresSnapshot], began_at: datetime) -> None:
    """Append the state of the source to ``audit.snapshots``.

    :param snapshots: snapshots of the main database and, if state has a database of its own, of that database.
    :param began_at: start of this try. Rows that the run wrote before this time belong to earlier tries.
    """
    snapshot, state = snapshots[0], snapshots[1] if len(snapshots) > 1 else None
    row = {
        "branch": app.run.branch,
        "taken_at": snapshot.taken_at,
        "server_name": app.settings.synapse_server_name,
        "server_version": snapshot.server_version,
        "schema_version": snapshot.schema_version,
        "in_recovery": snapshot.in_recovery,
        "sequences": [vars(sequence) for sequence in snapshot.sequences],
        "drifted_tables": sorted(item for each in snapshots for item in each.drifted_tables.items()),
        "absent_objects": [name for each in snapshots for name in each.absent_objects],
        "unknown_objects": [name for each in snapshots for name in each.unknown_objects],
        "began_at": began_at,
        "state_in_recovery": state and state.in_recovery,
        "state_snapshot": state and {"taken_at": state.taken_at} | snapshot_columns(state),
    }
    store.append_audit_rows(app.catalog, "audit.snapshots", [row | snapshot_columns(snapshot)], app.run)


def record_measured_tables(app: SparkApp, catalogue: Catalogue, connection: Connection) -> None:
    """Count the rows of tables that are never copied, in the copy's snapshot; append to ``audit.stream_facts``."""
    now = datetime.now(UTC)
    writers = _read_writers(app, catalogue, connection)
    rows = []
    for table in catalogue.measured_tables():
        for stream, column in table.streams.items():
            by_writer = count_stream_ids(connection, table, column)
            rows_by_writer = Counter[str]()
            for counts in by_writer:
                rows_by_writer[counts.writer or default_writer(writers[stream])] += counts.rows
            firsts = [counts.first_id for counts in by_writer if counts.first_id is not None]
            lasts = [counts.last_id for counts in by_writer if counts.last_id is not None]
            rows.append(
                {
                    "stream": stream,
                    "table_name": table.name,
                    "rows": sum(counts.rows for counts in by_writer),
                    "null_ids": sum(counts.null_ids for counts in by_writer),
                    "first_id": min(firsts, default=None),
                    "last_id": max(lasts, default=None),
                    "rows_by_writer": sorted(rows_by_writer.items()),
                    "measured_at": now,
                }
            )
    store.append_audit_rows(app.catalog, "audit.stream_facts", rows, app.run)


def _read_writers(app: SparkApp, catalogue: Catalogue, connection: Connection) -> dict[str, Collection[str]]:
    """Return the writers by stream: the configured writers, or else the writers with a position."""
    # Writers may be configured for streams that the source's release lacks.
    configured = read_configured_writers(
        load_catalogue(), app.settings.lakehouse_stream_writers, app.settings.synapse_config
    )
    table_names: dict[str | None, set[str]] = {}
    for name, writer in connection.execute("select stream_name, instance_name from stream_positions"):
        table_names.setdefault(name, set()).add(writer)
    return {
        stream.name: configured.get(stream.name) or table_names.get(stream.stream_positions, set())
        for stream in catalogue.streams
    }
