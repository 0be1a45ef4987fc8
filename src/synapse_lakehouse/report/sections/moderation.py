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
select coalesce(reported_server, 'rooms') as reported, kind, count(*) as reports, max(received_at) as newest
from gold.reports where reported_server is not null or kind = 'room'
group by 1, 2 order by reports desc, reported, kind limit 30
"""


SECTION: Final = Section(
    "moderation",
    "Moderation",
    "Who reported what?",
    (
        Panel(
            "reports-by-server",
            "Present reports by the server of the reported user",
            "An administrator deletes reports that are done. Reports of events without a stored sender are only in the "
            "list below.",
            _BY_SERVER,
            (
                Column("reported", "Server"),
                Column("kind", "Kind"),
                Column("reports", "Reports", Format.NUMBER),
                Column("newest", "Newest", Format.TIME),
            ),
            "Nothing is reported.",
            partial(charts.draw_bars, label="reported", value="reports", title="reports", series="kind"),
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
