"""Upkeep: background updates that an upgrade has to wait for, and rooms that can be deleted."""

from collections.abc import Sequence
from typing import Final

import altair as alt
from duckdb import DuckDBPyConnection

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.catalogue.postgres_end_of_support import find_end_of_support
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Row, Section, draw_no_chart
from synapse_lakehouse.report.update_history import read_pending_updates

_UPDATES: Final = """
select update_name, progress_json from bronze.background_updates order by ordering, update_name limit 100
"""
_VERSIONS: Final = """
select server_version, schema_version, absent_objects from audit.snapshots
where server_version is not null order by began_at desc limit 1
"""
_CHECKS: Final = """
select subject, case when fault is null then 'ready' else 'fault' end as state, checked, fault, advice, checked_at
from audit.upgrade_checks
where checked_at = (select max(checked_at) from audit.upgrade_checks) order by fault nulls last, subject
"""
_ROOMS: Final = """
select room_id, joined_members, unforgotten_local_users, last_event_at, stored_rows, estimated_bytes, media_events
from gold.room_cleanup where pending_local_users = 0
order by estimated_bytes desc nulls last, stored_rows desc, room_id limit 30
"""


def _add_history(rows: Sequence[Row], connection: DuckDBPyConnection, settings: Settings) -> list[Row]:
    """Return the rows with two releases: the first one with the update, and the first one with its present progress."""
    history = {update.name: update for update in read_pending_updates(connection, settings)} if rows else {}
    return [
        {
            **row,
            "waits_for": update.waits_for,
            "first_seen": str(update.first_seen),
            "unchanged_since": None if update.is_new else str(update.unchanged_since),
        }
        if (update := history.get(row["update_name"]))
        else {**row, "waits_for": None, "first_seen": None, "unchanged_since": None}
        for row in rows
    ]


def _describe_progress(rows: Sequence[Row]) -> str:
    is_new = any(row["unchanged_since"] is None for row in rows)
    return "Whether a new update progresses is known after another run." if is_new else ""


def _describe_versions(rows: Sequence[Row], *_: object) -> list[Row]:
    """The versions, with PostgreSQL's end of support and the releases of Synapse that create such a schema."""
    return [
        {
            **row,
            "supported_until": find_end_of_support(row["server_version"]),
            "schema_release": load_catalogue().describe_release(row["absent_objects"] or ()),
        }
        for row in rows
    ]


def _draw_cleanup(rows: Sequence[Row]) -> alt.Chart | None:
    known = [row for row in rows if row["estimated_bytes"] is not None]
    return charts.draw_bars(known, "room_id", "estimated_bytes", "size", unit=Format.BYTES) if known else None


SECTION: Final = Section(
    "upkeep",
    "Upgrade and cleanup",
    "May I upgrade, and which rooms can go?",
    (
        Panel(
            "background-updates",
            "Background updates that are not complete",
            "Let Synapse complete them before you upgrade it. Synapse runs one update at a time. If the progress of "
            "this update is the same for a day, the update is stuck, or it creates an index.",
            _UPDATES,
            (
                Column("update_name", "Update"),
                Column("waits_for", "Waits for"),
                Column("first_seen", "First seen"),
                Column("unchanged_since", "Same progress since"),
                Column("progress_json", "Progress"),
            ),
            "No background update is pending.",
            draw_no_chart,
            _add_history,
            _describe_progress,
        ),
        Panel(
            "postgresql",
            "Versions of PostgreSQL and of Synapse",
            "After the end of support, PostgreSQL gets no security fixes. Synapse's database does not record the "
            "release of Synapse. Its tables and columns show which release changed the schema last; after a rollback, "
            "an earlier release of Synapse runs on this schema.",
            _VERSIONS,
            (
                Column("server_version", "PostgreSQL"),
                Column("supported_until", "Supported until", Format.DAY),
                Column("schema_release", "Schema of Synapse's release"),
                Column("schema_version", "Version of the schema", Format.NUMBER),
            ),
            "No run has recorded the versions yet.",
            draw_no_chart,
            _describe_versions,
        ),
        Panel(
            "upgrade-checks",
            "Sequences and collation",
            "Synapse checks its sequences and the collation of its database when it starts, such as after an upgrade. "
            "The last run checked them in the same way; `uv run lakehouse doctor` checks them now.",
            _CHECKS,
            (
                Column("subject", "Subject"),
                Column("state", "State"),
                Column("checked", "Checked", Format.NUMBER),
                Column("fault", "Fault"),
                Column("advice", "Advice"),
                Column("checked_at", "Time", Format.TIME),
            ),
            "No run has checked the sequences and the collation yet. `uv run lakehouse doctor` checks them.",
            draw_no_chart,
        ),
        Panel(
            "room-cleanup",
            "Rooms without local members, by the size that their deletion frees inside the tables",
            "The sizes are estimates. `uv run lakehouse rooms cleanup` prints the calls of Synapse's admin API that "
            "delete rooms and media.",
            _ROOMS,
            (
                Column("room_id", "Room"),
                Column("joined_members", "Remote members", Format.NUMBER),
                Column("unforgotten_local_users", "Not forgotten by", Format.NUMBER),
                Column("last_event_at", "Last event", Format.TIME),
                Column("stored_rows", "Rows", Format.NUMBER),
                Column("estimated_bytes", "Size", Format.BYTES),
                Column("media_events", "Events with media", Format.NUMBER),
            ),
            "Every room has a local member, or has invited a local user.",
            _draw_cleanup,
        ),
    ),
)
