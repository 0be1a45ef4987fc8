"""When the replication tap last listened, from Iceberg's metadata alone where it says so. Light to import."""

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

FLUSH: Final = "lakehouse.replication.flush"
"""Property of a snapshot that a tap wrote: its dialect, and a name of its own."""

CUT_OFF: Final = "lakehouse.replication.cut_off"
"""Property of such a snapshot that has no positions in its end: no sign that the tap listens."""


def last_landed(catalog: Catalog) -> datetime | None:
    """When a tap last committed while it listened, or first did, if it never listened; None if none ever committed."""
    from pyiceberg.expressions import EqualTo

    from synapse_lakehouse.iceberg.read.recent_rows import read_newest_rows
    from synapse_lakehouse.iceberg.write.tables import load_table_or_none

    table = load_table_or_none(catalog, COMMANDS_TABLE)
    if table is None or table.current_snapshot() is None:
        return None
    summaries = (
        (one.timestamp_ms, one.summary.additional_properties if one.summary else {}) for one in table.snapshots()
    )
    if (landed := _latest(summaries)) is not None:
        return landed
    moments = read_newest_rows(table, "received_at", EqualTo(term="command", value="TAP"), ("received_at",))[
        "received_at"
    ]
    if not len(moments):
        # There is nothing but refusals, so it is small.
        moments = table.scan(selected_fields=("received_at",)).to_arrow().sort_by("received_at")["received_at"][:1]
    return moments[-1].as_py() if len(moments) else None


def last_landed_by_duckdb(connection: DuckDBPyConnection, settings: Settings) -> datetime | None:
    """As :func:`last_landed`, for who has DuckDB at hand."""
    entry = list_catalog_entries(settings).get(COMMANDS_TABLE)
    if entry is None:
        return None
    told: Mapping[str, Any] = duckdb_reader.read_metadata(connection, entry.location)
    snapshots = told.get("snapshots") or []
    if not snapshots:
        return None
    if (landed := _latest((one["timestamp-ms"], one.get("summary") or {}) for one in snapshots)) is not None:
        return landed
    duckdb_reader.create_views(connection, settings, None, [COMMANDS_TABLE])
    listened = "coalesce(max(received_at) filter (command = 'TAP'), min(received_at))"
    row = connection.execute(f"select {listened} from {COMMANDS_TABLE}").fetchone()  # noqa: S608
    return row[0] if row else None


def _latest(snapshots: Iterable[tuple[int, Mapping[str, Any]]]) -> datetime | None:
    written = [moment for moment, summary in snapshots if FLUSH in summary and CUT_OFF not in summary]
    return datetime.fromtimestamp(max(written) / 1000, UTC) if written else None
