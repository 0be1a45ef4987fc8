"""Compare an index with the heap of its table, in one PostgreSQL snapshot."""

import time
from dataclasses import dataclass, field
from typing import Final

import psycopg
from psycopg import sql

from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import DAMAGE_CODES, ReadError
from synapse_lakehouse.postgres.indexes.btree_index import BtreeIndex
from synapse_lakehouse.postgres.indexes.entry_digest import add_hash, build_digest_query, choose_groups, is_in_groups
from synapse_lakehouse.postgres.indexes.index_faults import IndexFault, IndexFaultKind, find_index_faults
from synapse_lakehouse.postgres.indexes.index_scan_sql import (
    ALL_KEYS,
    PLAIN_INDEX_SCANS_ONLY,
    SEQUENTIAL_SCANS_ONLY,
    build_entries_query,
    build_heap_query,
    choose_key_search,
    reads_only,
)
from synapse_lakehouse.postgres.indexes.read_entries import allow_scans, read_entries
from synapse_lakehouse.postgres.rows.range_digest import RowDigest, find_differing_ranges

MAX_EXAMINED_ROWS: Final = 100_000
"""Maximum number of entries and rows of differing groups that are compared one by one."""


@dataclass
class IndexComparison:
    """The result for one index.

    * ``not_checked``: the reason why the index could not be compared; empty if it was compared.
    * ``entries``, ``rows``: number of entries in the index that return a row, and of rows that should have an entry.
    * ``differing``: number of groups of rows that differ. ``examined``: number of these groups that were compared row
      by row. ``faults``: the faults in the examined groups.
    """

    index: BtreeIndex
    not_checked: str = ""
    entries: int = 0
    rows: int = 0
    differing: int = 0
    examined: int = 0
    faults: list[IndexFault] = field(default_factory=list)
    seconds: float = 0.0


def compare_with_heap(connection: Connection, index: BtreeIndex, max_rows: int = MAX_EXAMINED_ROWS) -> IndexComparison:
    """Compare all entries of ``index`` with all rows of its table. A row is identified by its place in the heap.

    The comparison runs in a transaction of its own.

    :raises ReadError: when a statement fails for another reason than damage, for example after its timeout.
    """
    result = IndexComparison(index)
    started = time.monotonic()
    try:
        with connection.transaction():
            _compare(connection, result, max_rows)
    except psycopg.Error as error:
        if error.sqlstate not in DAMAGE_CODES:
            raise ReadError(error) from None
        result.faults.append(IndexFault(IndexFaultKind.UNREADABLE, (f"{error.sqlstate} {ReadError(error)}",)))
    finally:
        connection.rollback()
    result.seconds = time.monotonic() - started
    return result


def _compare(connection: Connection, result: IndexComparison, max_rows: int) -> None:
    index = result.index
    hashed = ["row_id", *(f"k{place}" for place in range(len(index.keys)))]
    with allow_scans(connection, PLAIN_INDEX_SCANS_ONLY):
        if not (search := choose_key_search(connection, index)):
            result.not_checked = "PostgreSQL reads another index, or none, for its keys"
            return
        entries_query = build_entries_query(index, search, [ALL_KEYS])
        entries = _read_digests(
            connection, build_digest_query(entries_query, hashed, are_entries=True, are_grouped=True)
        )
    rows_query = build_heap_query(index)
    with allow_scans(connection, SEQUENTIAL_SCANS_ONLY):
        if not reads_only(connection, rows_query, "Seq Scan"):
            result.not_checked = "PostgreSQL does not read the table sequentially"
            return
        rows = _read_digests(connection, build_digest_query(rows_query, hashed, are_entries=False, are_grouped=True))
    result.entries, result.rows = (sum(digest.rows for digest in side.values()) for side in (entries, rows))
    differing = find_differing_ranges(entries, rows)
    examined = choose_groups(differing, entries, rows, max_rows)
    result.differing, result.examined = len(differing), len(examined)
    if not examined:
        return
    with allow_scans(connection, PLAIN_INDEX_SCANS_ONLY):
        found = read_entries(connection, add_hash(entries_query, hashed), hashed, is_in_groups(examined))
    with allow_scans(connection, SEQUENTIAL_SCANS_ONLY):
        query = sql.SQL("select {} from ({}) as hashed where {}").format(
            sql.SQL(", ").join(map(sql.Identifier, hashed)), add_hash(rows_query, hashed), is_in_groups(examined)
        )
        result.faults = find_index_faults(found, connection.execute(query).fetchall())


def _read_digests(connection: Connection, query: sql.Composed) -> dict[str, RowDigest]:
    return {name: RowDigest(*map(int, digest)) for name, *digest in connection.execute(query)}
