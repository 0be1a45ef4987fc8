"""Count a table's rows, changed rows and stream IDs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.select_sql import build_changed_since_condition, build_stream_id_counts

MAX_CTIDS: Final = 50_000
"""Maximum number of changed rows whose ctids are returned."""


_ESTIMATED_ROWS: Final = """
select name, sum(greatest(reltuples, 0))::bigint
from unnest(%s::text[]) as name,
  lateral (select to_regclass(name) as file union select relid from pg_partition_tree(to_regclass(name))) as files
join pg_class on pg_class.oid = file and relkind = 'r'
group by name
"""


@dataclass(frozen=True)
class RowCounts:
    """Number of rows and of changed rows in a table.

    ``ctids``: ctids of the changed rows as a PostgreSQL array, if they are few. They are valid in the same PostgreSQL
    snapshot only.
    """

    rows: int
    changed: int
    ctids: str | None


@dataclass(frozen=True)
class StreamIdCounts:
    """Counts of one writer's rows and stream IDs, in a table whose rows are only counted, not copied."""

    writer: str | None
    rows: int
    null_ids: int
    first_id: int | None
    last_id: int | None


def count_rows(connection: Connection, table: Table) -> int:
    """Return the number of rows of ``table`` that the PostgreSQL snapshot sees."""
    row = connection.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(table.name))).fetchone()
    return int(row[0]) if row else 0


def count_changed_rows(connection: Connection, table: Table, transaction: int, max_ctids: int = MAX_CTIDS) -> RowCounts:
    """Count, in one scan, the visible rows of ``table``, and the rows that ``transaction`` or a later one wrote.

    The visible rows come from PostgreSQL's statistics if ``track_counts`` is on, because an aggregate over all rows
    would add a third to the time of the scan. A cursor returns the ctids of the first changed rows. ``MOVE`` counts the
    other changed rows, which the server does not send.

    :param max_ctids: maximum number of changed rows whose ctids are returned.
    """
    scanned_before = _read_scanned_rows(connection, table)
    connection.execute(
        sql.SQL("declare changed no scroll cursor for select ctid from {} where {}").format(
            sql.Identifier(table.name), build_changed_since_condition(transaction)
        )
    )
    ctids = connection.execute(sql.SQL("fetch {} from changed").format(max_ctids + 1)).fetchall()
    changed = len(ctids) + connection.execute("move forward all in changed").rowcount
    connection.execute("close changed")
    scanned = _read_scanned_rows(connection, table)
    rows = count_rows(connection, table) if scanned_before is None or scanned is None else scanned - scanned_before
    array = "{" + ",".join(f'"{ctid}"' for (ctid,) in ctids) + "}"
    return RowCounts(rows, changed, array if changed <= max_ctids else None)


def estimate_rows(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return PostgreSQL's estimated number of rows of each table, by name; partitions count for their table."""
    return dict(connection.execute(_ESTIMATED_ROWS.encode(), [list(names)]).fetchall())


def count_stream_ids(connection: Connection, table: Table, stream_column: str) -> list[StreamIdCounts]:
    """Count the rows and stream IDs of a table that is not copied; return one result per writer."""
    return [StreamIdCounts(*row) for row in connection.execute(build_stream_id_counts(table, stream_column)).fetchall()]


def _read_scanned_rows(connection: Connection, table: Table) -> int | None:
    """Return the number of visible rows in this transaction's sequential scans of ``table``; None if unknown.

    The number is unknown if a query may see fewer rows than the scan (row-level security) or more (inheritance), or if
    ``track_counts`` is off.
    """
    row = connection.execute(
        "select pg_stat_get_xact_tuples_returned(c.oid) from pg_class c join pg_am a on a.oid = c.relam and"
        " a.amname = 'heap' where c.oid = to_regclass(%s) and not c.relhassubclass and not row_security_active(c.oid)"
        " and current_setting('track_counts')::bool",
        [table.name],
    ).fetchone()
    return int(row[0]) if row else None
