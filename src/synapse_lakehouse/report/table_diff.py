"""Rows that were added, changed and removed in a table between two of its Iceberg snapshots.

Only the files that differ are read. A row that was written again to another file, with the same content, is unchanged.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import iceberg_scan_sql, quote_literal

_POSITION: Final = ("filename", "file_row_number")


@dataclass(frozen=True)
class TableDiff:
    """A table at two releases. ``rows_*`` and ``bytes_*`` are None if the release does not have the table.

    ``added``, ``changed``, ``removed``: numbers of rows; None if a number is unknown. ``note``: the rows or columns
    that were not compared, or "".
    """

    table: str
    rows_before: int | None
    rows_after: int | None
    bytes_before: int | None
    bytes_after: int | None
    added: int | None
    changed: int | None
    removed: int | None
    note: str = ""

    @property
    def is_unchanged(self) -> bool:
        """Return whether both releases have the same rows."""
        return (self.added, self.changed, self.removed) == (0, 0, 0)


@dataclass(frozen=True)
class _Snapshot:
    """An Iceberg snapshot: rows of its data files by path, the paths of its delete files, its rows and its bytes."""

    scan: str
    data: Mapping[str, int]
    deletes: frozenset[str]
    rows: int
    bytes: int


@dataclass(frozen=True)
class TableComparison:
    """A prepared comparison of two Iceberg snapshots of a table; :meth:`compare` carries it out.

    ``rows_to_read``: the rows of the files that differ.
    """

    table: str
    before: _Snapshot | None
    after: _Snapshot | None

    @property
    def rows_to_read(self) -> int:
        """Return the number of rows in the files that :meth:`compare` reads."""
        if self.before is None or self.after is None or self.before.scan == self.after.scan:
            return 0
        differing = self._differing()
        return sum(
            rows
            for snapshot in (self.before, self.after)
            for file, rows in snapshot.data.items()
            if file in differing or self.before.deletes != self.after.deletes
        )

    def compare(self, connection: DuckDBPyConnection, key: Sequence[str]) -> TableDiff:
        """Return the difference.

        :param key: columns that identify a row. Without key columns, a changed row counts as one removed and one added
            row.
        """
        before, after = self.before, self.after
        if before is None or after is None:
            return self.describe(after.rows if after else 0, 0, before.rows if before else 0)
        if before.scan == after.scan:
            return self.describe(0, 0, 0)
        differing = self._differing()
        sides = [_rows_sql(before, after, differing), _rows_sql(after, before, differing)]
        columns, former = ([name for name, *_ in connection.execute(f"describe {sql}").fetchall()] for sql in sides)
        shared = [name for name in columns if name in former and name not in _POSITION]
        keys = [name for name in key if name in shared]
        content = f"hash({', '.join(map(_quoted, shared))})::hugeint"
        grouped = ", ".join(map(_quoted, keys)) if keys else content
        sql = (
            "with sides as ("  # noqa: S608 - quoted names and literals
            f"select *, -1 as side from ({_select(shared, sides[0])}) union all"
            f" select *, 1 from ({_select(shared, sides[1])})), counted as ("
            f"select count(*) filter (side = 1) as added, count(*) filter (side = -1) as removed,"
            f" coalesce(sum(side * {content}), 0) as difference from sides group by {grouped})"
            " select coalesce(sum(added - least(added, removed)), 0)::bigint,"
            " coalesce(sum(least(added, removed)) filter (difference <> 0 or added <> removed), 0)::bigint,"
            " coalesce(sum(removed - least(added, removed)), 0)::bigint from counted"
        )
        added, changed, removed = connection.execute(sql).fetchall()[0]
        other = sorted({*columns, *former} - {*shared, *_POSITION})
        note = f"columns that only one release has are not compared: {', '.join(other)}" if other else ""
        return self.describe(added, changed if keys else None, removed, note)

    def describe(self, added: int | None, changed: int | None, removed: int | None, note: str = "") -> TableDiff:
        """Return the difference with these numbers of rows."""
        before, after = self.before, self.after
        return TableDiff(
            self.table,
            before.rows if before else None,
            after.rows if after else None,
            before.bytes if before else None,
            after.bytes if after else None,
            added,
            changed,
            removed,
            note,
        )

    def _differing(self) -> set[str]:
        """Paths of the data files that only one of the Iceberg snapshots has."""
        assert self.before
        assert self.after
        return set(self.before.data.keys() ^ self.after.data.keys())


def prepare_comparison(
    connection: DuckDBPyConnection, table: str, location: str, before: int | None, after: int | None
) -> TableComparison:
    """Return the comparison of two Iceberg snapshots of ``table``; None stands for a release without the table.

    :param location: the metadata file of the table.
    :raises LakeReadError: when a snapshot has expired.
    """
    summaries = {
        snapshot["snapshot-id"]: snapshot["summary"]
        for snapshot in duckdb_reader.read_metadata(connection, location).get("snapshots", [])
    }

    def load(snapshot_id: int | None) -> _Snapshot | None:
        if snapshot_id is None:
            return None
        if snapshot_id not in summaries:
            raise LakeReadError(
                f"{table} cannot be compared: an Iceberg snapshot has expired with its release. `lakehouse releases` "
                "lists the releases; compare later ones."
            )
        return _load_snapshot(connection, location, snapshot_id, summaries[snapshot_id], is_needed=before != after)

    first = load(before)
    return TableComparison(table, first, first if before == after else load(after))


def _load_snapshot(
    connection: DuckDBPyConnection, location: str, snapshot_id: int, summary: Mapping[str, Any], *, is_needed: bool
) -> _Snapshot:
    scan = iceberg_scan_sql(location, snapshot_id)
    rows, size = int(summary["total-records"]), int(summary.get("total-files-size", 0))
    if int(summary.get("total-delete-files", 0)):
        # total-records includes deleted rows, and the summary's deletes include deletes that apply to no file any more.
        rows = connection.execute(f"select count(*) from {scan}").fetchall()[0][0]  # noqa: S608 - quoted
    listed = (
        connection.execute(
            "select manifest_content, file_path, record_count"  # noqa: S608 - quoted
            f" from iceberg_metadata({quote_literal(location)}, snapshot_from_id => {int(snapshot_id)})"
            " where status <> 'DELETED'"
        ).fetchall()
        if is_needed
        else []
    )
    data = {path: count for content, path, count in listed if content == "DATA"}
    return _Snapshot(scan, data, frozenset(path for content, path, _ in listed if content != "DATA"), rows, size)


def _rows_sql(snapshot: _Snapshot, other: _Snapshot, differing: Collection[str]) -> str:
    """Return a SELECT of the rows of ``snapshot`` in files that ``other`` lacks, and of rows that ``other`` deleted."""
    files = ", ".join(map(quote_literal, differing)) or "''"
    sql = f"select *, filename, file_row_number from {snapshot.scan} where filename in ({files})"  # noqa: S608 - quoted
    if snapshot.deletes == other.deletes:
        return sql
    common = f"from {{}} where filename not in ({files})"
    return (
        f"{sql} union all by name select mine.* from"  # noqa: S608 - quoted
        f" (select *, filename, file_row_number {common.format(snapshot.scan)}) mine anti join"
        f" (select filename, file_row_number {common.format(other.scan)}) others using (filename, file_row_number)"
    )


def _select(columns: Sequence[str], sql: str) -> str:
    return f"select {', '.join(map(_quoted, columns))} from ({sql})"  # noqa: S608 - quoted


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
