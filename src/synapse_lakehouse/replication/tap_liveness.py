"""The time when the replication tap last showed that it listens. This module imports no large package."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from duckdb import DuckDBPyConnection
    from pyiceberg.catalog import Catalog

    from synapse_lakehouse.config.settings import Settings

COMMIT_PROPERTY: Final = "lakehouse.replication.flush"
"""Property of an Iceberg snapshot that a tap wrote: source, dialect and a unique ID."""

WITHOUT_POSITIONS: Final = "lakehouse.replication.cut_off"
"""Additional property of such a snapshot if its commit has no positions, and so does not show that the tap listens."""


def read_last_commit_time(catalog: Catalog) -> datetime | None:
    """Return the last commit time of a connected tap.

    If no tap was ever connected, return the time of the first recorded command. Without commands, return None.
    """
    from pyiceberg.expressions import EqualTo

    from synapse_lakehouse.iceberg.read.recent_rows import read_newest_rows
    from synapse_lakehouse.iceberg.write.tables import load_table_or_none

    table = load_table_or_none(catalog, COMMANDS_TABLE)
    if table is None or table.current_snapshot() is None:
        return None
    summaries = (
        (snapshot.timestamp_ms, snapshot.summary.additional_properties if snapshot.summary else {})
        for snapshot in table.snapshots()
    )
    if (committed_at := _latest_commit(summaries)) is not None:
        return committed_at
    positions = EqualTo(term="command", value="TAP")
    times = read_newest_rows(table, "received_at", positions, ("received_at",))["received_at"]
    if not len(times):
        # The table contains only errors of refused connections, so it is small.
        times = table.scan(selected_fields=("received_at",)).to_arrow().sort_by("received_at")["received_at"][:1]
    return times[-1].as_py() if len(times) else None


def read_last_commit_time_by_duckdb(connection: DuckDBPyConnection, settings: Settings) -> datetime | None:
    """Like :func:`read_last_commit_time`, through DuckDB."""
    entry = list_catalog_entries(settings).get(COMMANDS_TABLE)
    if entry is None:
        return None
    metadata: Mapping[str, Any] = duckdb_reader.read_metadata(connection, entry.location)
    snapshots = metadata.get("snapshots") or []
    if not snapshots:
        return None
    summaries = ((snapshot["timestamp-ms"], snapshot.get("summary") or {}) for snapshot in snapshots)
    if (committed_at := _latest_commit(summaries)) is not None:
        return committed_at
    duckdb_reader.create_views(connection, settings, None, [COMMANDS_TABLE])
    last_time = "coalesce(max(received_at) filter (command = 'TAP'), min(received_at))"
    row = connection.execute(f"select {last_time} from {COMMANDS_TABLE}").fetchone()  # noqa: S608
    return row[0] if row else None


def _latest_commit(snapshots: Iterable[tuple[int, Mapping[str, Any]]]) -> datetime | None:
    times = [time for time, summary in snapshots if COMMIT_PROPERTY in summary and WITHOUT_POSITIONS not in summary]
    return datetime.fromtimestamp(max(times) / 1000, UTC) if times else None
