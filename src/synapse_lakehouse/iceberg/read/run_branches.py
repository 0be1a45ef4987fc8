"""Branches of runs and the lake lease, from Iceberg metadata only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from duckdb import DuckDBPyConnection

from synapse_lakehouse.config.run import is_run_branch
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import is_unbranched
from synapse_lakehouse.iceberg.lease.lease_holder import LeaseHolder, parse_current_lease
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import CatalogEntry, list_catalog_entries


@dataclass(frozen=True)
class RunBranch:
    """The branch of a run: the tables with this branch, the time of its last write, and Airflow's run ID if known."""

    name: str
    tables: tuple[str, ...]
    written_at: datetime
    run_id: str | None


def list_branches(connection: DuckDBPyConnection, settings: Settings) -> list[RunBranch]:
    """Return the branches of runs on all tables, sorted by name. The branch of an active run is included."""
    entries = list_catalog_entries(settings)
    tables: dict[str, list[str]] = {}
    last_commits: dict[str, int] = {}
    for name, entry in sorted(entries.items()):
        if entry.is_view or is_unbranched(name):
            continue
        metadata = duckdb_reader.read_metadata(connection, entry.location)
        for ref, pointer in metadata.get("refs", {}).items():
            if is_run_branch(ref):
                tables.setdefault(ref, []).append(name)
                milliseconds = _snapshot(metadata, pointer["snapshot-id"])["timestamp-ms"]
                last_commits[ref] = max(last_commits.get(ref, 0), milliseconds)
    runs = _runs(connection, settings, entries) if tables else {}
    return [
        RunBranch(name, tuple(tables[name]), datetime.fromtimestamp(last_commits[name] / 1000, UTC), runs.get(name))
        for name in sorted(tables)
    ]


def read_lease_holder(connection: DuckDBPyConnection, settings: Settings) -> LeaseHolder | None:
    """Return the holder of the lake lease, even if the lease has expired; None if no run has the lease."""
    entry = list_catalog_entries(settings).get("audit.leases")
    if entry is None:
        return None
    metadata = duckdb_reader.read_metadata(connection, entry.location)
    current = metadata.get("current-snapshot-id")
    summary = _snapshot(metadata, current)["summary"] if current not in (None, -1) else {}
    return parse_current_lease(summary)


def _snapshot(metadata: Mapping[str, Any], snapshot_id: int) -> Mapping[str, Any]:
    snapshots: list[Mapping[str, Any]] = metadata["snapshots"]
    return next(snapshot for snapshot in snapshots if snapshot["snapshot-id"] == snapshot_id)


def _runs(connection: DuckDBPyConnection, settings: Settings, entries: Mapping[str, CatalogEntry]) -> dict[str, str]:
    """Return Airflow's run ID by branch."""
    if "audit.snapshots" not in entries:
        return {}
    duckdb_reader.create_views(connection, settings, None, ["audit.snapshots"])
    return dict(connection.execute("select branch, any_value(run_id) from audit.snapshots group by branch").fetchall())
