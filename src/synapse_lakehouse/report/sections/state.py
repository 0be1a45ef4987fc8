"""Room state: rows by room, and the rows that compression gives back."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import altair as alt

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Row, Section

_ROWS: Final = """
with largest as (
  select room_id, sum(delta_rows)::bigint as state_rows, count(*) as groups, max(chain_length) as longest_chain,
    count(*) filter (events = 0) as unreferenced_groups
  from gold.state_group_sizes group by room_id order by state_rows desc, room_id limit 15
)
select coalesce(name || ' (' || left(room_id, 8) || '…)', room_id) as room, room_id, state_rows, groups,
  unreferenced_groups, longest_chain
from largest left join silver.rooms using (room_id) order by state_rows desc, room_id
"""
_COMPRESSION: Final = """
with planned as (
  from gold.compression_plan where run_id = (select max_by(run_id, planned_at) from gold.compression_plan)
),
largest as (from planned where skipped is null order by rows_before - rows_after desc, room_id limit 15)
select coalesce(name || ' (' || left(room_id, 8) || '…)', room_id) as room, strategy, rows_before, rows_after,
  rows_before - rows_after as rows_saved, bytes_before - bytes_after as bytes_saved
from largest left join silver.rooms using (room_id) order by rows_saved desc, room_id
"""


def _draw_compression(rows: Sequence[Row]) -> alt.Chart:
    pairs = [
        {"room": row["room"], "plan": name, "rows": row[column]}
        for row in rows
        for column, name in (("rows_before", "now"), ("rows_after", "compressed"))
    ]
    return charts.draw_bars(pairs, "room", "rows", "rows of state_groups_state", "plan")


SECTION: Final = Section(
    "state",
    "Room state",
    "What does compression give back?",
    (
        Panel(
            "state-rooms",
            "Rooms with the most state rows",
            "Rows of state_groups_state by room. No event refers to an unreferenced group.",
            _ROWS,
            (
                Column("room", "Room"),
                Column("state_rows", "Rows", Format.NUMBER),
                Column("groups", "State groups", Format.NUMBER),
                Column("unreferenced_groups", "Unreferenced", Format.NUMBER),
                Column("longest_chain", "Longest chain", Format.NUMBER),
            ),
            "Synapse's database has no state groups.",
            partial(charts.draw_bars, label="room", value="state_rows", title="rows of state_groups_state"),
        ),
        Panel(
            "compression",
            "Rows that compression gives back",
            "The rooms of the latest plan that save the most rows.",
            _COMPRESSION,
            (
                Column("room", "Room"),
                Column("strategy", "Strategy"),
                Column("rows_before", "Rows now", Format.NUMBER),
                Column("rows_after", "Compressed", Format.NUMBER),
                Column("rows_saved", "Saved rows", Format.NUMBER),
                Column("bytes_saved", "Saved bytes", Format.BYTES),
            ),
            "No plan of the compressor exists yet, or it saves nothing. The DAG state_compression makes one.",
            _draw_compression,
        ),
    ),
)
