"""What a tap heard and what is there, compared in SQL, for DuckDB.

``commands``: as in ``bronze.replication_commands``. ``windows``: :class:`coverage.Window`, and ``leaves``, why rows of
the stream may be gone, or NULL. ``ids``: stream, writer and id of the rows that are there, each once a table, and
``is_announced``, whether Synapse announces every row of that. ``witnessed``: stream, first_id, last_id and reason of
ids that had a row. Ids are distances, without the sign of negative streams.
"""

from typing import Final

TAPS: Final = """
select dialect, min(received_at), max(received_at), arg_min(fields, received_at), arg_max(fields, received_at)
from commands where command = 'TAP' group by dialect
"""
"""Dialect, when the first and the last commit were made, and the positions in them, as JSON."""

FIRSTS: Final = """
select dialect, stream, instance,
    min(case command when 'RDATA' then token - 1 when 'GAP' then previous else token end)
from commands where command in ('RDATA', 'GAP', 'POSITION') group by all
"""
"""Dialect, stream, instance, and the token after which the source's first command follows."""

PLACED: Final = """
create temp table placed as
select number, windows.after, upto, read_from, command, source, token, previous, received_at, fields
from windows join commands on windows.dialect = commands.dialect and windows.stream = commands.stream
    and windows.instance is not distinct from commands.instance
where command in ('RDATA', 'GAP', 'POSITION')
"""
"""What was told of the sources that are compared."""

ROWLESS: Final = """
create temp table rowless as
select distinct windows.number, windows.stream, windows.dialect, leaves, placed.token as id
from windows join placed using (number)
where command = 'RDATA' and token > windows.after and token <= windows.upto
    and not exists (from ids where ids.stream = windows.stream and ids.id = placed.token)
"""
"""Tokens that the tap got and that have no row."""

COUNTED: Final = """
with marked as (
    select *, token > after and token <= upto as is_inside, source = 'database' as is_read,
        max(token) filter (source <> 'database' and command <> 'GAP') over (
            partition by number order by received_at rows between unbounded preceding and 1 preceding
        ) as furthest
    from placed
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
"""By source: rows and tokens in the window, heard or read from the database; gaps that touch it; commands since the run
before that name a token behind one that was heard before; when the first token beyond the window came."""

EXPECTED: Final = """
select number, count(distinct id) filter (id <= upto) as ids, count(distinct id) filter (id > upto) as ahead
from windows join ids on windows.stream = ids.stream and coalesce(windows.instance, ids.writer) = ids.writer
where is_announced and id > windows.after and id <= bound group by number
"""
"""By source, how many ids have rows in the window, and beyond it at or below the bound."""

MISSING: Final = """
with heard as (select distinct dialect, stream, token from commands where command = 'RDATA'),
gaps as (
    select number, previous as after, token as upto, 'gap: ' || (fields ->> '$.cause') as reason
    from placed where command = 'GAP'
),
unheard as (
    select windows.number, dialect, windows.stream, id
    from windows join ids on windows.stream = ids.stream and coalesce(windows.instance, ids.writer) = ids.writer
    where is_announced and id > windows.after and id <= upto
),
missing as (
    select unheard.number, 'wire' as side, coalesce(min(reason), 'never_announced') as reason, id
    from unheard left join gaps on unheard.number = gaps.number and id > gaps.after and id <= gaps.upto
    anti join heard on unheard.dialect = heard.dialect and unheard.stream = heard.stream and id = heard.token
    group by unheard.number, id
    union all
    select number, 'lake', coalesce(leaves, min(reason), 'lost'), id
    from rowless left join witnessed on rowless.stream = witnessed.stream and id between first_id and last_id
    group by number, leaves, id
),
ranges as (
    select number, side, reason, min(id) as first_id, max(id) as last_id, count(*) as ids
    from (select *, id - row_number() over (partition by number, side, reason order by id) as island from missing)
    group by number, side, reason, island
)
select number, side, reason, first_id, last_id, (sum(ids) over (partition by number, side, reason))::bigint as total
from ranges qualify row_number() over (partition by number, side, reason order by first_id) <= $named
order by number, side, reason, first_id
"""
"""Number, side, reason, first and last ID of the first ranges of IDs missing on one side, and the number of all."""
