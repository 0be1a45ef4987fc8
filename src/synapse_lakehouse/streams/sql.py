"""SQL over stream ids, for Spark; what the laws of gaps are tried on in tests is DuckDB's, too.

Ids are distances, without the sign of negative streams, where nothing else is said.
"""

from typing import Final

ID_COUNTS: Final = """
with blocks as (
    select stream, table_name, writer, shiftright(id, 6) as block, bit_or(shiftleft(1L, cast(id & 63 as int))) as ids,
        min(id) as first_id, max(id) as last_id, count(*) as rows, count_if(id is null) as null_ids,
        count_if(is_received) as received, count_if(is_received is null) as timeless
    from counted_ids group by stream, table_name, writer, shiftright(id, 6)
),
merged as (
    select stream, table_name, writer, grouping(writer) = 1 as is_total, bit_or(ids) as ids,
        min(first_id) as first_id, max(last_id) as last_id, sum(rows) as rows, sum(null_ids) as null_ids,
        sum(received) as received, sum(timeless) as timeless
    from blocks
    group by stream, table_name, writer, block
        grouping sets ((stream, table_name, block), (stream, table_name, writer))
)
select stream, table_name, writer, is_total, coalesce(sum(bit_count(ids)), 0) as ids,
    min(first_id) as first_id, max(last_id) as last_id, sum(rows) as rows, sum(null_ids) as null_ids,
    sum(received) as received, sum(timeless) as timeless
from merged group by stream, table_name, writer, is_total
"""
"""How many rows and ids each table of a stream has, and how many rows each writer.

Ids lie close together: those of a block are one number, a bit each, so that as many ids take a 64th of the memory.

Reads ``counted_ids``: stream, table_name, writer, id with its sign, is_received. Gives a row for each stream and table
(is_total), and one for each writer of theirs, whose ids mean nothing.
"""

GAPLESS_RUNS: Final = """
select stream, max(distance) as run
from (
    select stream, distance, row_number() over (partition by stream order by distance) as n
    from (select distinct stream, distance from beyond)
)
where distance = n group by stream
"""
"""As :func:`positions.gapless_end`: ids that follow a stream's minimum without a gap.

Reads ``beyond``: stream and distance from the minimum, over zero. Gives stream and run; no row where there is none.
"""

MISSING_RANGES: Final = """
with points as (
    select distinct stream, id, cast(floor(id / 1000000) as bigint) as block
    from (
        select ids.stream, ids.id from ids join windows on ids.stream = windows.stream
        where ids.id > windows.after and ids.id <= windows.until
        union all select stream, after from windows where until > after
        union all select stream, until + 1 from windows where until > after
    )
),
blocks as (select stream, block, min(id) as lowest, max(id) as highest from points group by stream, block),
followed as (
    select stream, id, lead(id) over (partition by stream, block order by id) as following from points
    union all
    select stream, highest, lead(lowest) over (partition by stream order by block) from blocks
)
select stream, id + 1 as first_id, following - 1 as last_id from followed where following > id + 1
"""
"""Ranges of ids that are missing in a window; no worker holds more than a block of ids.

Reads ``ids`` (stream, id) and ``windows`` (stream, after, until): one row a stream, its ids over ``after`` and up to
``until``. Gives stream, first_id, last_id.
"""

EVIDENCE_RANGES: Final = """
select stream, table_name, witness, explanation, min(id) as first_id, max(id) as last_id
from (
    select stream, table_name, witness, explanation, id,
        id - row_number() over (partition by stream, table_name, witness, explanation order by id) as island
    from witnessed
)
group by stream, table_name, witness, explanation, island
"""
"""Ids that had a row, as ranges.

Reads ``witnessed`` (stream, table_name, id, witness, explanation), each id once per table. Gives the same columns with
first_id and last_id for id.
"""
