"""Spark SQL that compares received commands with the stored rows.

IDs are absolute values, also in streams with negative IDs. Names in braces are data frames:

- ``commands``: rows of ``bronze.replication_commands``.
- ``windows``: fields of :class:`token_windows.Window`; ``default_writer``: the writer of rows without a writer;
  ``removal_reason``: why rows of the stream may be deleted.
- ``ids``: stream, writer and ID of the stored rows, without repetition; ``is_announced``: whether Synapse announces
  every row of the table.
- ``gaps``: rows of ``audit.stream_gaps`` with evidence that a row existed.
- Each other frame is the result of the query with its name.
"""

from typing import Final

TAPS: Final = """
select dialect, min(received_at) as first_at, max(received_at) as last_at, min_by(fields, received_at) as first,
    max_by(fields, received_at) as last
from {commands} where command = 'TAP' group by dialect
"""
"""Columns: dialect, times of the first and the last commit, positions of these commits as JSON."""

FIRST_TOKENS: Final = """
select dialect, stream, instance,
    min(case command when 'RDATA' then token - 1 when 'GAP' then previous else token end) as token
from {commands} where command in ('RDATA', 'GAP', 'POSITION') group by dialect, stream, instance
"""
"""Columns: dialect, stream, instance, and the last token before the source's first command."""

SOURCE_COMMANDS: Final = """
select number, w.after, w.upto, w.read_from, c.command, c.source, c.token, c.previous, c.received_at, c.fields
from {commands} as c
join {windows} as w on w.dialect = c.dialect and w.stream = c.stream and w.instance <=> c.instance
where c.command in ('RDATA', 'GAP', 'POSITION')
"""
"""The commands of the compared sources."""

ROWLESS: Final = """
select distinct w.number, w.stream, w.dialect, w.removal_reason, c.token as id
from {windows} as w join {source_commands} as c on w.number = c.number
    left anti join {ids} as i on i.stream = w.stream and i.id = c.token
where c.command = 'RDATA' and c.token > w.after and c.token <= w.upto
"""
"""Received tokens without a stored row."""

ANNOUNCED: Final = """
select stream, token as id, min_by(struct(row, received_at), struct(row like '["state%' as is_state, ordinal)) as first
from (
    select r.stream, c.token, c.row, c.received_at, c.ordinal
    from {commands} as c join {rowless} as r on r.stream = c.stream and r.dialect = c.dialect and r.id = c.token
    where c.command = 'RDATA' and r.removal_reason is null
)
group by stream, token
"""
"""The announced row of each rowless token of an append-only stream. An event's own row is preferred to rows of its
state changes, because it contains more."""

COUNTED: Final = """
with marked as (
    select *, token > after and token <= upto as is_inside, source = 'database' as is_read,
        max(case when source <> 'database' and command <> 'GAP' then token end) over (
            partition by number order by received_at rows between unbounded preceding and 1 preceding
        ) as furthest
    from {source_commands}
)
select number,
    count_if(command = 'RDATA' and is_inside) as rows,
    count(distinct case when command = 'RDATA' and is_inside and not is_read then token end) as tokens_received,
    count(distinct case when command = 'RDATA' and is_inside and is_read then token end) as tokens_read,
    count_if(command = 'GAP' and token > after and previous < upto) as gaps,
    count_if(
        command <> 'GAP' and not is_read and token < furthest and (read_from is null or received_at > read_from)
    ) as token_regressions,
    min(case when command <> 'POSITION' and token > upto then received_at end) as open_since
from marked group by number
"""
"""One row per source. Columns about the window: numbers of rows, of received tokens, and of tokens that the tap read
from the database. Other columns: number of gaps that overlap the window, number of new commands with a lower token than
an earlier command, and time of the first token after the window."""

STORED: Final = """
select w.number, w.dialect, w.stream, w.upto, i.id
from {windows} as w join {ids} as i
    on i.stream = w.stream and (w.instance is null or w.instance = coalesce(i.writer, w.default_writer))
where i.is_announced and i.id > w.after and i.id <= w.bound
"""
"""Stored IDs that each source should have announced: up to the bound of the stream."""

EXPECTED: Final = """
select number, count(distinct case when id <= upto then id end) as ids,
    count(distinct case when id > upto then id end) as ahead
from {stored} group by number
"""
"""For each source, the number of IDs with rows: in the window, and between the window's end and the bound."""

MISSING: Final = """
with unannounced as (
    select distinct s.number, s.id from {stored} as s
    left anti join {commands} as c
        on c.command = 'RDATA' and c.dialect = s.dialect and c.stream = s.stream and c.token = s.id
    where s.id <= s.upto
),
evidenced as (
    select stream, least(abs(first_id), abs(last_id)) as first_id, greatest(abs(first_id), abs(last_id)) as last_id,
        coalesce(explanation, class) as reason
    from {gaps}
),
blocks as (
    select *, explode(sequence(first_id div 4096, last_id div 4096)) as block from evidenced
),
missing as (
    select u.number, 'wire' as side, u.id,
        coalesce(min('gap: ' || get_json_object(g.fields, '$.cause')), 'never_announced') as reason
    from unannounced as u left join {source_commands} as g
        on g.command = 'GAP' and g.number = u.number and u.id > g.previous and u.id <= g.token
    group by u.number, u.id
    union all
    select r.number, 'lake', r.id, coalesce(r.removal_reason, min(e.reason), 'lost')
    from {rowless} as r left join blocks as e
        on e.stream = r.stream and e.block = r.id div 4096 and r.id between e.first_id and e.last_id
    group by r.number, r.removal_reason, r.id
),
islands as (
    select *, id - row_number() over (partition by number, side, reason order by id) as island from missing
),
ranges as (
    select number, side, reason, min(id) as first_id, max(id) as last_id, count(*) as ids
    from islands group by number, side, reason, island
),
ranked as (
    select *, sum(ids) over (partition by number, side, reason) as total,
        row_number() over (partition by number, side, reason order by first_id) as rank
    from ranges
)
select number, side, reason, first_id, last_id, total from ranked where rank <= :max_ranges
order by number, side, reason, first_id
"""
"""The first missing ranges: number, side, reason, first and last ID, and the number of all missing IDs. Ranges with
evidence are joined by blocks of IDs, so that Spark does not compare each ID with each range."""
