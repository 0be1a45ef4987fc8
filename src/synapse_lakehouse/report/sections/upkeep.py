"""Upkeep: background updates that an upgrade has to wait for, and rooms that can be deleted."""

from functools import partial
from typing import Final

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Section, draw_no_chart

_UPDATES: Final = """
select update_name, depends_on, progress_json from bronze.background_updates order by ordering, update_name limit 100
"""
_ROOMS: Final = """
select room_id, joined_members, unforgotten_local_users, last_event_at, stored_rows, estimated_bytes, media_events
from gold.room_cleanup where pending_local_users = 0
order by estimated_bytes desc nulls last, stored_rows desc, room_id limit 30
"""


SECTION: Final = Section(
    "upkeep",
    "Upkeep",
    "May I upgrade, and which rooms can go?",
    (
        Panel(
            "background-updates",
            "Background updates that are not complete",
            "Let Synapse complete them before you upgrade it. `lakehouse doctor` reports since when each is pending, "
            "until when PostgreSQL is supported, and whether sequences and collations allow a start.",
            _UPDATES,
            (
                Column("update_name", "Update"),
                Column("depends_on", "Waits for"),
                Column("progress_json", "Progress"),
            ),
            "No background update is pending, so Synapse may be upgraded.",
            draw_no_chart,
        ),
        Panel(
            "room-cleanup",
            "Rooms without local members, by the space that their deletion frees inside the tables",
            "The sizes are estimates. `lakehouse rooms cleanup` prints the calls of Synapse's admin API that delete "
            "rooms and media.",
            _ROOMS,
            (
                Column("room_id", "Room"),
                Column("joined_members", "Remote members", Format.NUMBER),
                Column("unforgotten_local_users", "Not forgotten by", Format.NUMBER),
                Column("last_event_at", "Last event", Format.TIME),
                Column("stored_rows", "Rows", Format.NUMBER),
                Column("estimated_bytes", "Space", Format.BYTES),
                Column("media_events", "Events with media", Format.NUMBER),
            ),
            "Every room has a local member, or an invitation for one.",
            partial(charts.draw_bars, label="room_id", value="stored_rows", title="rows"),
        ),
    ),
)
