"""The differences between two releases: rows of each table, rooms, users and findings.

The difference names only rooms and users that the latest release has, and no erased user.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import CatalogEntry, list_catalog_entries
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import iceberg_scan_sql
from synapse_lakehouse.report.declared_tables import load_declared_tables
from synapse_lakehouse.report.table_diff import TableDiff, prepare_comparison

MAX_ROWS: Final = 5_000_000
"""Maximum number of rows in differing files that are compared, in all tables together. The smallest tables are compared
first. Tables beyond the limit get row counts only."""
MAX_NAMES: Final = 20
"""Maximum number of rooms, and of users, that are named."""


@dataclass(frozen=True)
class RoomGrowth:
    """Events of a room at two releases; ``before`` is None if the room is new."""

    room_id: str
    before: int | None
    after: int


@dataclass(frozen=True)
class FindingsChange:
    """Findings of a check of gold.state_integrity that only the later or only the earlier release has."""

    check: str
    severity: str
    new: int
    resolved: int


@dataclass(frozen=True)
class ReleaseDiff:
    """The difference between two releases.

    ``new_rooms``, ``new_users``: numbers. ``rooms``: the rooms that grew most, and the largest new ones. ``users``: IDs
    of the latest new users.
    """

    before: Release
    after: Release
    tables: Sequence[TableDiff]
    new_rooms: int
    rooms: Sequence[RoomGrowth]
    new_users: int
    users: Sequence[str]
    findings: Sequence[FindingsChange]


def read_release_diff(
    connection: DuckDBPyConnection,
    settings: Settings,
    numbers: tuple[int | None, int | None] = (None, None),
    max_rows: int | None = MAX_ROWS,
) -> ReleaseDiff:
    """Return the difference between two releases.

    :param numbers: the earlier and the later release; default: the newest two.
    :param max_rows: see :data:`MAX_ROWS`; None compares all tables.
    :raises LakeReadError: when there is no second release, or an Iceberg snapshot has expired.
    """
    releases = duckdb_reader.list_releases(connection, settings)
    before, after = _select_releases(releases, *numbers)
    difference = _Difference(connection, list_catalog_entries(settings), before, after, releases[0])
    # The comparison of the tables comes first, because it explains expired Iceberg snapshots in its error.
    tables = difference.tables(max_rows)
    new_users, users = difference.users()
    new_rooms, rooms = difference.rooms()
    return ReleaseDiff(before, after, tables, new_rooms, rooms, new_users, users, difference.findings())


def _select_releases(releases: Sequence[Release], first: int | None, second: int | None) -> tuple[Release, Release]:
    by_number = {release.number: release for release in releases}
    newest = max(by_number, default=0)
    later = second if second is not None else newest
    earlier = first if first is not None else max((number for number in by_number if number < later), default=0)
    for number in (earlier, later):
        if number not in by_number:
            listed = f"The releases are {min(by_number)} to {newest}." if by_number else "Run `make run` first."
            missing = f"There is no release {number}." if number else "There are no two releases to compare yet."
            raise LakeReadError(f"{missing} {listed}")
    return by_number[min(earlier, later)], by_number[max(earlier, later)]


@dataclass(frozen=True)
class _Difference:
    connection: DuckDBPyConnection
    entries: dict[str, CatalogEntry]
    before: Release
    after: Release
    latest: Release

    def tables(self, max_rows: int | None) -> list[TableDiff]:
        """The difference of each table, by name; small tables are compared first."""
        names = [name for name in sorted({*self.before.tables, *self.after.tables}) if name in self.entries]
        comparisons = [
            prepare_comparison(
                self.connection, name, self.entries[name].location, self.before.tables.get(name),
                self.after.tables.get(name),
            )
            for name in names
        ]  # fmt: skip
        differences, compared, declared = [], 0, load_declared_tables()
        for comparison in sorted(comparisons, key=lambda item: item.rows_to_read):
            compared += comparison.rows_to_read
            if max_rows is not None and compared > max_rows:
                note = f"not compared: {comparison.rows_to_read:,} rows are in files that differ"
                differences.append(comparison.describe(None, None, None, note))
            else:
                key = declared[comparison.table].key if comparison.table in declared else ()
                differences.append(comparison.compare(self.connection, key))
        return sorted(differences, key=lambda item: item.table)

    def users(self) -> tuple[int, list[str]]:
        """The number of new users, and the IDs of the newest ones."""
        if not self._differs("bronze.users"):
            return 0, []
        rows = self._query(
            f"select name, name in (select name from {self._at('bronze.users', self.latest)})"  # noqa: S608 - quoted
            f" and name not in (select user_id from {self._at('bronze.erased_users', self.latest)}) as is_named"
            f" from {self._at('bronze.users', self.after)}"
            f" where name not in (select name from {self._at('bronze.users', self.before)})"
            " order by creation_ts desc, name"
        )
        return len(rows), [name for name, is_named in rows if is_named][:MAX_NAMES]

    def rooms(self) -> tuple[int, list[RoomGrowth]]:
        """The number of new rooms, and the rooms with the most additional events."""
        if not self._differs("bronze.events") and not self._differs("bronze.rooms"):
            return 0, []
        counts = "select room_id, count(*) as events from {} group by room_id"
        rows = self._query(
            f"with before as ({counts.format(self._at('bronze.events', self.before))}),"  # noqa: S608 - quoted
            f" after as ({counts.format(self._at('bronze.events', self.after))}),"
            f" rooms as (select room_id from {self._at('bronze.rooms', self.before)} union select room_id from before)"
            " select room_id, case when room_id in (from rooms) then coalesce(before.events, 0) end as events_before,"
            " after.events as events_after,"
            f" room_id in (select room_id from {self._at('bronze.events', self.latest)}) as is_named"
            " from after left join before using (room_id)"
            " where after.events > coalesce(before.events, 0)"
            " order by after.events - coalesce(before.events, 0) desc, room_id"
        )
        named = [RoomGrowth(*row) for *row, is_named in rows if is_named]
        return sum(before is None for _, before, *_ in rows), named[:MAX_NAMES]

    def findings(self) -> list[FindingsChange]:
        """New and resolved findings by check."""
        if not self._differs("gold.state_integrity"):
            return []
        keys = "select check_name, severity, room_id, subject from {}"
        before, after = (keys.format(self._at("gold.state_integrity", at)) for at in (self.before, self.after))
        rows = self._query(
            f"with new as (({after}) except ({before})), resolved as (({before}) except ({after}))"  # noqa: S608 - quoted
            " select check_name, severity, count(*) filter (is_new), count(*) filter (not is_new)"
            " from (select *, true as is_new from new union all select *, false from resolved)"
            " group by check_name, severity order by list_position(['fail', 'warn', 'info'], severity), check_name"
        )
        return [FindingsChange(*row) for row in rows]

    def _differs(self, name: str) -> bool:
        snapshots = self.before.tables.get(name), self.after.tables.get(name)
        return name in self.entries and None not in snapshots and snapshots[0] != snapshots[1]

    def _at(self, name: str, release: Release) -> str:
        """The table function that reads a table at a release; an empty table if the release does not have it."""
        snapshot, entry = release.tables.get(name), self.entries.get(name)
        if snapshot is None or entry is None:
            return "(select null::varchar as name, null::varchar as user_id, null::varchar as room_id where false)"
        return iceberg_scan_sql(entry.location, snapshot)

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()
