"""Read an index range by range, within a limit of time."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import DAMAGE_CODES, ReadError
from synapse_lakehouse.postgres.indexes.btree_index import BtreeIndex
from synapse_lakehouse.postgres.indexes.entry_digest import add_hash, build_digest_query, is_in_groups
from synapse_lakehouse.postgres.indexes.index_faults import IndexEntry
from synapse_lakehouse.postgres.indexes.index_scan_sql import (
    PLAIN_INDEX_SCANS_ONLY,
    Key,
    KeySearch,
    build_entries_query,
    build_next_keys_query,
    build_range_conditions,
    choose_key_search,
    reads_only,
)
from synapse_lakehouse.postgres.indexes.key_range import KeyRange
from synapse_lakehouse.postgres.indexes.read_entries import allow_scans, read_entries
from synapse_lakehouse.postgres.rows.range_digest import EMPTY_DIGEST, RowDigest

_MINIMUM_ENTRIES: Final = 100
_MAXIMUM_ENTRIES: Final = 50_000
_SECONDS_PER_RANGE: Final = 1.0
"""Intended duration of a range's read. It is short, because the time limit may cut off the last range."""


_OTHER_PLAN: Final = "PostgreSQL reads another index, or none, for its keys"
_TRUE: Final = sql.SQL("true")


class OtherPlanError(LakehouseError):
    """PostgreSQL would not read the index by a plain index scan of this index only."""


@dataclass(frozen=True)
class ScannedRange:
    """A range of an index, read or unreadable. ``error``: why it is unreadable; then no later range can be found."""

    keys: KeyRange
    digest: RowDigest = EMPTY_DIGEST
    error: str = ""


class IndexScan:
    """Reads ``index`` within the open transaction of ``connection``.

    :param columns: columns that, with the key of the index, identify a row.
    """

    def __init__(self, connection: Connection, index: BtreeIndex, columns: list[str]) -> None:
        self._connection, self.index, self._columns = connection, index, columns
        self.names = [
            *(f"k{place}" for place in range(len(index.keys))),
            *(f"c{place}" for place in range(len(columns))),
        ]
        with allow_scans(connection, PLAIN_INDEX_SCANS_ONLY):
            search = choose_key_search(connection, index)
        if not search:
            raise OtherPlanError(_OTHER_PLAN)
        self._search: KeySearch = search

    def iterate_ranges(self, first: Key | None, seconds: float, count: int) -> Iterator[ScannedRange]:
        """Yield ranges from ``first`` on, until the index or the time ends, or damage prevents a read.

        :param count: number of entries of the first range. Further ranges take about a second.
        :raises OtherPlanError: when PostgreSQL would read a range in another way.
        """
        until = time.monotonic() + seconds
        while (started := time.monotonic()) < until:
            try:
                with allow_scans(self._connection, PLAIN_INDEX_SCANS_ONLY):
                    keys = KeyRange(first, self._find_end(first, count, until))
                    scanned = ScannedRange(keys, self._digest(keys, until))
            except psycopg.errors.QueryCanceled:
                return
            except psycopg.Error as error:
                if error.sqlstate not in DAMAGE_CODES:
                    raise
                yield ScannedRange(KeyRange(first, None), error=f"{error.sqlstate} {ReadError(error)}")
                return
            yield scanned
            if keys.end is None:
                return
            first = keys.end
            pace = count * min(_SECONDS_PER_RANGE, seconds / 10) / max(time.monotonic() - started, 1e-3)
            count = int(min(max(pace, _MINIMUM_ENTRIES), _MAXIMUM_ENTRIES, 4 * count))

    def digest_groups(self, keys: KeyRange, until: float | None) -> dict[str, RowDigest] | None:
        """Return the digests of a range's entries by group of hashes; None if the query lasts beyond ``until``."""
        try:
            with allow_scans(self._connection, PLAIN_INDEX_SCANS_ONLY):
                entries = self._build_query(keys)
                query = build_digest_query(entries, self.names, are_entries=True, are_grouped=True)
                self._set_timeout(until)
                return {group: RowDigest(*map(int, digest)) for group, *digest in self._connection.execute(query)}
        except psycopg.errors.QueryCanceled:
            return None

    def read_range(
        self, keys: KeyRange, until: float | None, groups: Sequence[str] | None = None
    ) -> list[IndexEntry] | None:
        """Return the entries of a range, with the columns ``names``; None if the read lasts beyond ``until``.

        :param groups: groups of hashes; entries of other groups are not read. None: all entries.
        """
        condition = _TRUE if groups is None else is_in_groups(groups)
        try:
            with allow_scans(self._connection, PLAIN_INDEX_SCANS_ONLY):
                query = self._build_query(keys)
                if groups is not None:
                    query = add_hash(query, self.names)
                self._set_timeout(until)
                return [
                    IndexEntry(
                        entry.place, entry.row_id, entry.row, entry.is_own and entry.row[: len(self.index.keys)] in keys
                    )
                    for entry in read_entries(self._connection, query, self.names, condition)
                ]
        except psycopg.errors.QueryCanceled:
            return None

    def _digest(self, keys: KeyRange, until: float) -> RowDigest:
        query = build_digest_query(self._build_query(keys), self.names, are_entries=True)
        self._set_timeout(until)
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return RowDigest(*map(int, row[1:]))

    def _build_query(self, keys: KeyRange) -> sql.Composed:
        conditions = build_range_conditions(self.index, keys.first, keys.end)
        return self._require_plan(build_entries_query(self.index, self._search, conditions, self._columns))

    def _find_end(self, first: Key | None, count: int, until: float) -> Key | None:
        """Return the next key at least ``count`` entries after ``first``; None if there is none.

        The query returns several keys. The smallest is the result, because a wrong entry may return a much later key.
        """
        query = self._require_plan(build_next_keys_query(self.index, first, count))
        self._set_timeout(until)
        return min((tuple(key) for key in self._connection.execute(query)), default=None)

    def _set_timeout(self, until: float | None) -> None:
        """Let PostgreSQL cancel the transaction's next statement at the time ``until`` of the monotonic clock."""
        if until is not None:
            milliseconds = max(1, int((until - time.monotonic()) * 1000))
            self._connection.execute("select set_config('statement_timeout', %s, true)", [str(milliseconds)])

    def _require_plan(self, query: sql.Composed) -> sql.Composed:
        if not reads_only(self._connection, query, "Index Scan", self.index.name):
            raise OtherPlanError(_OTHER_PLAN)
        return query
