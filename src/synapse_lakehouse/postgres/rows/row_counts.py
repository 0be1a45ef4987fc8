"""Count a table's rows, changed rows and stream IDs, and the pages of its heap."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.page_ranges import PageRange, count_pages
from synapse_lakehouse.postgres.rows.select_sql import build_changed_since_condition, build_stream_id_counts

MAX_CTIDS: Final = 50_000
"""Maximum number of changed rows whose ctids are returned."""


_HEAP: Final = """
select coalesce(array_agg(filenode order by file::oid), '{}'),
  coalesce(sum(pages), 0)::bigint, coalesce(max(pages), 0)
from to_regclass(%s) as parent,
  lateral (select parent as file union select relid from pg_partition_tree(parent)) as files,
  lateral (select pg_relation_filenode(file)::bigint as filenode) as nodes,
  lateral (select pg_relation_size(file) / current_setting('block_size')::int as pages) as sizes
where filenode is not null
"""
"""The parameter is the name of a table. A partitioned table itself has no file, so its filenode is NULL."""

_ESTIMATED_ROWS: Final = """
select name, sum(greatest(reltuples, 0))::bigint
from unnest(%s::text[]) as name,
  lateral (select to_regclass(name) as file union select relid from pg_partition_tree(to_regclass(name))) as files
join pg_class on pg_class.oid = file and relkind = 'r'
group by name
"""


@dataclass(frozen=True)
class Heap:
    """The file of a table's rows; of a partitioned table, the files of all partitions.

    * ``filenode``: number of the file; of several files, a hash of their numbers. A rewritten table has
      another one.
    * ``pages``: size of all files. ``largest_file_pages``: size of the largest file. Each file has its own page
      numbers, so a range of pages is read from each file.
    """

    filenode: int
    pages: int
    largest_file_pages: int

    def count_pages(self, part: PageRange) -> int:
        """Return the number of pages in ``part``, as if all files were equally long; at least 1."""
        pages = count_pages(part, self.largest_file_pages)
        return max(1, pages * self.pages // self.largest_file_pages) if self.pages else pages


@dataclass(frozen=True)
class RowCounts:
    """Number of rows and of changed rows in a table.

    ``ctids``: ctids of the changed rows as a PostgreSQL array, if they are few; valid in the same snapshot only. None
    for a partitioned table, where rows of several partitions may have the same ctid.
    """

    rows: int
    changed: int
    ctids: str | None


@dataclass(frozen=True)
class StreamIdCounts:
    """Stream IDs of one writer in a table whose rows are only counted, not copied."""

    writer: str | None
    rows: int
    null_ids: int
    first_id: int | None
    last_id: int | None


def read_heap(connection: Connection, table: Table) -> Heap:
    """Return the heap of ``table``."""
    row = connection.execute(_HEAP.encode(), [table.name]).fetchone()
    assert row is not None
    filenodes, pages, largest = row
    digest = hashlib.sha256(repr(filenodes).encode()).hexdigest()
    return Heap(filenodes[0] if len(filenodes) == 1 else int(digest[:15], 16), pages, largest)


def count_rows(connection: Connection, table: Table) -> int:
    """Return the number of rows of ``table`` that the PostgreSQL snapshot sees."""
    row = connection.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(table.name))).fetchone()
    return int(row[0]) if row else 0


def count_changed_rows(connection: Connection, table: Table, transaction: int, max_ctids: int = MAX_CTIDS) -> RowCounts:
    """Count, in one scan, the visible rows of ``table`` and those that ``transaction`` or a later one wrote.

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
    are_unique = changed <= max_ctids and not is_partitioned(connection, table)
    return RowCounts(rows, changed, array if are_unique else None)


def is_partitioned(connection: Connection, table: Table) -> bool:
    """Return whether ``table`` is a partitioned table."""
    query = "select from pg_class where oid = to_regclass(%s) and relkind = 'p'"
    return connection.execute(query, [table.name]).fetchone() is not None


def estimate_rows(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return PostgreSQL's estimates of the rows of tables, by name; of a partitioned table, those of all partitions."""
    return dict(connection.execute(_ESTIMATED_ROWS.encode(), [list(names)]).fetchall())


def count_stream_ids(connection: Connection, table: Table, stream_column: str) -> list[StreamIdCounts]:
    """Return the stream IDs of a table whose rows are only counted, one result per writer."""
    return [StreamIdCounts(*row) for row in connection.execute(build_stream_id_counts(table, stream_column)).fetchall()]


def _read_scanned_rows(connection: Connection, table: Table) -> int | None:
    """Return the number of visible rows in this transaction's sequential scans of ``table``; None if unknown.

    It is unknown if a query may see fewer rows than the scan (row-level security) or more (inheritance).
    """
    row = connection.execute(
        "select pg_stat_get_xact_tuples_returned(c.oid) from pg_class c join pg_am a on a.oid = c.relam and"
        " a.amname = 'heap' where c.oid = to_regclass(%s) and not c.relhassubclass and not row_security_active(c.oid)"
        " and current_setting('track_counts')::bool",
        [table.name],
    ).fetchone()
    return int(row[0]) if row else None
