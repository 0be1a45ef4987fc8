"""DuckDB queries that compare received commands with the stored rows.

IDs are absolute values, also in streams with negative IDs. Tables:

- ``commands``: rows of ``bronze.replication_commands``.
- ``windows``: fields of :class:`compare.Window`, and ``removal_reason``: why rows of the stream may be deleted.
- ``ids``: stream, writer and ID of the stored rows, once per table; ``is_announced``: Synapse announces every row.
- ``evidenced``: ranges of missing IDs with evidence of a row: stream, first_id, last_id, reason.
"""

from typing import Final

TAPS: Final = """
select dialect, min(received_at), max(received_at), arg_min(fields, received_at), arg_max(fields, received_at)
from commands where command = 'TAP' group by dialect
"""
"""Columns: dialect, times of the first and the last commit, positions of these commits as JSON."""

FIRST_TOKENS: Final = """
select dialect, stream, instance,
    min(case command when 'RDATA' then token - 1 when 'GAP' then previous else token end)
from commands where command in ('RDATA', 'GAP', 'POSITION') group by all
"""
"""Columns: dialect, stream, instance, and the last token before the source's first command."""

CREATE_SOURCE_COMMANDS: Final = """
create temp table source_commands as
select number, windows.after, upto, read_from, command, source, token, previous, received_at, fields
from windows join commands on windows.dialect = commands.dialect and windows.stream = commands.stream
    and windows.instance is not distinct from commands.instance
where command in ('RDATA', 'GAP', 'POSITION')
"""
"""Creates ``source_commands``: the commands of the compared sources."""

CREATE_ROWLESS: Final = """
create temp table rowless as
select distinct windows.number, windows.stream, windows.dialect, removal_reason, source_commands.token as id
from windows join source_commands using (number)
where command = 'RDATA' and token > windows.after and token <= windows.upto
    and not exists (from ids where ids.stream = windows.stream and ids.id = source_commands.token)
"""
"""Creates ``rowless``: received tokens without a stored row."""

COUNTED: Final = """
with marked as (
    select *, token > after and token <= upto as is_inside, source = 'database' as is_read,
        max(token) filter (source <> 'database' and command <> 'GAP') over (
            partition by number order by received_at rows between unbounded preceding and 1 preceding
        ) as furthest
    from source_commands
)
select number,
    count(*) filter (command = 'RDATA' and is_inside) as rows,
    count(distinct token) filter (command = 'RDATA' and is_inside and not is_read) as tokens_received,
    count(distinct token) filter (command = 'RDATA' and is_inside and is_read) as tokens_read,
    count(*) filter (command = 'GAP' and token > after and previous < upto) as gaps,
    count(*) filter (
        command <> 'GAP' and not is_read and token < furthest and (read_from is null or received_at > read_from)
    ) as token_regressions,
    min(received_at) filter (command <> 'POSITION' and token > upto) as open_since
from marked group by number
"""
"""One row per source. In the window: received rows, tokens that were received, and tokens that were read from the
database. Also gaps that overlap the window, new commands with a lower token than an earlier command, and the time of
the first token after the window."""

EXPECTED: Final = """
select number, count(distinct id) filter (id <= upto) as ids, count(distinct id) filter (id > upto) as ahead
from windows join ids on windows.stream = ids.stream and coalesce(windows.instance, ids.writer) = ids.writer
where is_announced and id > windows.after and id <= bound group by number
"""
"""For each source, the number of IDs with rows: in the window, and between its end and the bound."""

MISSING: Final = """
with received as (select distinct dialect, stream, token from commands where command = 'RDATA'),
gaps as (
    select number, previous as after, token as upto, 'gap: ' || (fields ->> '$.cause') as reason
    from source_commands where command = 'GAP'
),
stored as (
    select windows.number, dialect, windows.stream, id
    from windows join ids on windows.stream = ids.stream and coalesce(windows.instance, ids.writer) = ids.writer
    where is_announced and id > windows.after and id <= upto
),
missing as (
    select stored.number, 'wire' as side, coalesce(min(reason), 'never_announced') as reason, id
    from stored left join gaps on stored.number = gaps.number and id > gaps.after and id <= gaps.upto
    anti join received on stored.dialect = received.dialect and stored.stream = received.stream and id = received.token
    group by stored.number, id
    union all
    select number, 'lake', coalesce(removal_reason, min(reason), 'lost'), id
    from rowless left join evidenced on rowless.stream = evidenced.stream and id between first_id and last_id
    group by number, removal_reason, id
),
ranges as (
    select number, side, reason, min(id) as first_id, max(id) as last_id, count(*) as ids
    from (select *, id - row_number() over (partition by number, side, reason order by id) as island from missing)
    group by number, side, reason, island
)
select number, side, reason, first_id, last_id, (sum(ids) over (partition by number, side, reason))::bigint as total
from ranges qualify row_number() over (partition by number, side, reason order by first_id) <= $max_ranges
order by number, side, reason, first_id
"""
"""The first missing ranges: number, side, reason, first and last ID, and the number of all missing IDs."""
