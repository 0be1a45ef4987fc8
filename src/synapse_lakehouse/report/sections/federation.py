"""Federation: the delay of events from other servers, and servers that fell silent."""

from functools import partial
from typing import Final

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Section

_DELAY: Final = """
with measured as (from gold.federation_delay where p95_ms is not null and hour < now() + interval 1 day),
recent as (from measured where hour >= (select max(hour) from measured) - interval 7 days),
latest as (select server, max(p95_ms) as worst from recent group by server order by worst desc, server limit 8)
select hour, server, events, median_ms, p95_ms, clock_skew_ms from recent where server in (select server from latest)
order by hour, server
"""
_SILENT: Final = """
select server, last_hour, silent_hours, longest_pause_hours, events from gold.silent_servers
order by silent_hours / greatest(longest_pause_hours, 1) desc, server limit 40
"""

SECTION: Final = Section(
    "federation",
    "Federation",
    "Which server is late, or silent?",
    (
        Panel(
            "federation-delay",
            "Delay of events from other servers",
            "95th percentile of the time from sending to receipt, without the clock skew, for each hour with events of "
            "the last 7 days. The eight slowest servers are shown.",
            _DELAY,
            (
                Column("hour", "Hour", Format.TIME),
                Column("server", "Server"),
                Column("events", "Events", Format.NUMBER),
                Column("median_ms", "Median", Format.MILLISECONDS),
                Column("p95_ms", "95th percentile", Format.MILLISECONDS),
                Column("clock_skew_ms", "Clock skew", Format.MILLISECONDS),
            ),
            "No event from another server was measured yet.",
            partial(charts.draw_hourly_delays, series="server"),
        ),
        Panel(
            "silent-servers",
            "Servers that fell silent",
            "Servers whose silence before the newest event of this homeserver is more than twice as long as their "
            "longest pause in the four weeks before the silence.",
            _SILENT,
            (
                Column("server", "Server"),
                Column("last_hour", "Last event, hour", Format.TIME),
                Column("silent_hours", "Until the newest event", Format.HOURS),
                Column("longest_pause_hours", "Longest pause before", Format.HOURS),
                Column("events", "Events before", Format.NUMBER),
            ),
            "No server fell silent.",
            partial(
                charts.draw_bars,
                label="server",
                value="silent_hours",
                title="hours from the server's last event to the newest event",
            ),
        ),
    ),
)
