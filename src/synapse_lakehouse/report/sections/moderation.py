"""Moderation: reports of events, rooms and users."""

from functools import partial
from typing import Final

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Section, draw_no_chart

_REPORTS: Final = """
select received_at, kind, reported_user_id, reported_server, room_id, event_id, reporter_id from gold.reports
order by received_at desc, kind, report_id desc limit 100
"""
_BY_SERVER: Final = """
select
  coalesce(reported_server, nullif(substring(room_id, strpos(room_id, ':') + 1), room_id), 'no server in the ID')
    as server,
  kind, count(*) as reports, min(received_at) as oldest, max(received_at) as newest
from gold.reports group by 1, 2 order by reports desc, server, kind limit 30
"""


SECTION: Final = Section(
    "moderation",
    "Moderation",
    "Who reported what?",
    (
        Panel(
            "reports-by-server",
            "Open reports by the server of the reported user or room",
            "A report stays open until an administrator deletes it.",
            _BY_SERVER,
            (
                Column("server", "Server"),
                Column("kind", "Kind"),
                Column("reports", "Reports", Format.NUMBER),
                Column("oldest", "Oldest", Format.TIME),
                Column("newest", "Newest", Format.TIME),
            ),
            "Nothing is reported.",
            partial(charts.draw_bars, label="server", value="reports", title="reports", series="kind"),
        ),
        Panel(
            "reports",
            "The newest reports",
            "The lake does not contain the reasons, which are text by users. Synapse's admin API shows them.",
            _REPORTS,
            (
                Column("received_at", "Received", Format.TIME),
                Column("kind", "Kind"),
                Column("reporter_id", "Reported by"),
                Column("reported_user_id", "Reported user"),
                Column("room_id", "Room"),
                Column("event_id", "Event"),
            ),
            "Nothing is reported.",
            draw_no_chart,
        ),
    ),
)
