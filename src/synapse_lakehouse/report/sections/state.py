"""Room state: rows by room, and the rows that compression gives back."""

from collections.abc import Sequence
from typing import Final

import altair as alt

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Row, Section

_ROWS: Final = """
with groups as (
  select *, chain_length = 1 and row_number() over (partition by room_id, chain_length = 1 order by state_group) > 1
    as is_copy
  from gold.state_group_sizes
),
rooms as (
  select room_id, sum(delta_rows)::bigint as state_rows, count(*) as groups, max(chain_length) as longest_chain,
    count(*) filter (events = 0) as unreferenced_groups,
    coalesce(sum(delta_rows) filter (is_copy), 0)::bigint as copied_rows
  from groups group by room_id
),
largest as (
  select *, sum(state_rows) over ()::bigint as all_rows, sum(copied_rows) over ()::bigint as all_copied_rows
  from rooms order by state_rows desc, room_id limit 15
)
select coalesce(left(name, 30) || ' (' || left(room_id, 8) || '…)', room_id) as room, room_id, state_rows, copied_rows,
  groups, unreferenced_groups, longest_chain, all_rows, all_copied_rows
from largest left join silver.rooms using (room_id) order by state_rows desc, room_id
"""
_COMPRESSION: Final = """
with planned as (
  from gold.compression_plan where run_id = (select max_by(run_id, planned_at) from gold.compression_plan)
),
largest as (
  select planned.*, name, sum(rows_before - rows_after) over ()::bigint as all_saved,
    sum(rows_before) over ()::bigint as all_before,
    sum(bytes_before - bytes_after) over ()::bigint as all_saved_bytes
  from planned join silver.rooms using (room_id)
  where skipped is null order by rows_before - rows_after desc, room_id limit 15
)
select coalesce(left(name, 30) || ' (' || left(room_id, 8) || '…)', room_id) as room, room_id, strategy, rows_before,
  rows_after, rows_before - rows_after as rows_saved, bytes_before - bytes_after as bytes_saved, all_saved, all_before,
  all_saved_bytes
from largest order by rows_saved desc, room_id
"""


def _add_others(rows: Sequence[Row], *_: object) -> Sequence[Row]:
    """The rows, and a row for the other rooms."""
    state, copied = (sum(row[name] for row in rows) for name in ("state_rows", "copied_rows"))
    if not rows or state == rows[0]["all_rows"]:
        return rows
    rest = {"state_rows": rows[0]["all_rows"] - state, "copied_rows": rows[0]["all_copied_rows"] - copied}
    return [*rows, dict.fromkeys(rows[0]) | rest | {"room": "other rooms"}]


def _draw_rooms(rows: Sequence[Row]) -> alt.Chart:
    parts = [
        {"room": row["room"], "part": name, "rows": count}
        for row in rows
        if row["room_id"] is not None  # all other rooms together would make each bar short
        for name, count in (
            ("repeated rows", row["copied_rows"]),
            ("other rows", row["state_rows"] - row["copied_rows"]),
        )
    ]
    return charts.draw_bars(parts, "room", "rows", "rows of state_groups_state", "part", is_stacked=True)


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
            "Rows of state_groups_state by room. Repeated rows are in a copy of a whole state: compression replaces "
            "most of them, and some of the other rows.",
            _ROWS,
            (
                Column("room", "Room"),
                Column("state_rows", "Rows", Format.NUMBER),
                Column("copied_rows", "Repeated rows", Format.NUMBER),
                Column("groups", "State groups", Format.NUMBER),
                Column("unreferenced_groups", "Groups without events", Format.NUMBER),
                Column("longest_chain", "Longest chain", Format.NUMBER),
                Column("room_id", "Room ID"),
            ),
            "Synapse's database has no state groups.",
            _draw_rooms,
            _add_others,
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
                Column("room_id", "Room ID"),
            ),
            "No plan contains a room. `uv run lakehouse compress plan --number-of-rooms 1000` makes a plan.",
            _draw_compression,
        ),
    ),
)
