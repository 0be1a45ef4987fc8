"""What the lake holds of a table already, where a copy can go on from it instead of starting over."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Final

from pyiceberg.catalog import Catalog as Lake
from pyiceberg.table import Table as LakeTable
from pyiceberg.table.snapshots import Operation

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.iceberg.read.recent_rows import read_rows_since_run
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE, PageRange, find_remaining_pages
from synapse_lakehouse.postgres.rows.row_counts import HeapFile
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.postgres.snapshot.timeline import MAX_XID_AGE, WalPosition

PART_PROPERTY: Final = "lakehouse.part"
"""Property of a commit on a run's branch: which pages of which snapshot of the source the branch has since."""

_LOOKS: Final = "audit.snapshots"

_ORIGIN: Final = ("snapshot_xmin", "snapshot_xmax", "system_identifier", "database_oid", "timeline", "wal_lsn")
"""Columns of ``audit.snapshots`` and ``audit.ledger`` that tell snapshots of the source apart."""

_LOOK: Final = ("run_id", "taken_at", *_ORIGIN)


@dataclass(frozen=True)
class Baseline:
    """An Iceberg snapshot of a table, its rows, and the pages of the source that they came from.

    ``since``: the oldest transaction that the source's snapshot of it did not see the end of. Rows that this or a later
    one wrote may be missing or outdated in it; all others of its pages are as they were. ``heap_pages``: how many pages
    the source's table had then, if that was written down.
    """

    snapshot_id: int
    rows: int
    since: int
    pages: tuple[PageRange, ...] = (WHOLE_TABLE,)
    heap_pages: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it has all pages, so that it is a copy that only has to be brought up to date."""
        return not find_remaining_pages(self.pages)


@dataclass(frozen=True)
class PublishedTable:
    """A table of the lake, and the row of ``audit.ledger`` of its published content, if that is known.

    ``was_set_back``: a run since found the source behind what that was copied of.
    """

    table: LakeTable
    published: Mapping[str, Any] | None = None
    source_was_restored: bool = False

    def find_baseline(self, table: Table, snapshot: PostgresSnapshot) -> Baseline | None:
        """What is published, where ``snapshot`` can be told apart from it by row versions.

        That is if the source's history goes on from it, the catalogue reads the same of ``table``, and main is still
        what that run wrote, or a compaction of it.
        """
        current, said = self.table.current_snapshot(), self.published
        if not current or not said or self.source_was_restored or not _continues(said, table, snapshot):
            return None
        if not _holds(self.table, said["snapshot_id"]):
            return None
        return Baseline(current.snapshot_id, said["rows_source"], said["snapshot_xmin"], heap_pages=said["heap_pages"])


def read_published_tables(lake: Lake, catalogue: Catalogue) -> dict[str, PublishedTable]:
    """By name, the tables that are copied, and what the newest release has of them. Asks the source nothing."""
    found = {table.name: PublishedTable(lake.load_table(f"bronze.{table.name}")) for table in catalogue.copied_tables()}
    newest = store.read_latest_release(lake)
    return found | _released(lake, newest, found) if newest else found


def add_older_releases(lake: Lake, found: Mapping[str, PublishedTable]) -> dict[str, PublishedTable]:
    """The same, with what older releases have of tables that the newest, a partial one, has not."""
    missing = {name: one for name, one in found.items() if one.published is None}
    older: dict[str, PublishedTable] = {}
    for release in islice(store.iterate_newest_releases(lake), 1, None) if missing else ():
        older |= _released(lake, release, missing)
        missing = {name: one for name, one in missing.items() if name not in older}
        if not missing:
            break
    return {**found, **older}


def _released(lake: Lake, release: Release, wanted: Mapping[str, PublishedTable]) -> dict[str, PublishedTable]:
    looks = read_rows_since_run(lake.load_table(_LOOKS), release.run_id, "taken_at", _LOOK)
    set_back = _set_back(looks.to_pylist())
    rows = {row["table_name"]: row for row in store.read_release_ledger(lake, release) if row["table_name"] in wanted}
    return {
        name: replace(wanted[name], published=row, source_was_restored=_origin(row) in set_back)
        for name, row in rows.items()
    }


def find_interrupted_baseline(
    held: LakeTable,
    branch: str,
    table: Table,
    heap: HeapFile,
    snapshot: PostgresSnapshot,
    lasting: Callable[[], Collection[WalPosition]],
    count: Callable[[int], int],
) -> Baseline | None:
    """What an attempt that ended before its time left on ``branch``, as far as it is of use.

    :param lasting: see :func:`read_valid_wal_positions`; asked for only if there is something.
    :param count: counts the rows of an Iceberg snapshot of the table. Its summary cannot tell: deletes of files that
        were replaced since still count there.
    """
    head = at = held.snapshot_by_name(branch)
    done: list[PageRange] = []
    since = snapshot.xmin
    while at and at.summary and (part := at.summary.additional_properties.get(PART_PROPERTY)):
        said = json.loads(part)
        if said["filenode"] != heap.filenode or not _continues(said, table, snapshot):
            return None
        if _lineage(said) not in lasting():
            return None
        done.append(tuple(said["pages"]))
        since = min(since, said["snapshot_xmin"])
        if said["is_first"]:
            return Baseline(head.snapshot_id, count(head.snapshot_id), since, tuple(done)) if head else None
        at = held.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id else None
    return None


def read_valid_wal_positions(lake: Lake) -> set[WalPosition]:
    """Where in its history any run saw the source, but for where it was set back from since."""
    rows = lake.load_table(_LOOKS).scan(selected_fields=_LOOK).to_arrow().to_pylist()
    looks = [look for look in rows if look["wal_lsn"] is not None]
    set_back = _set_back(looks)
    return {_lineage(look) for look in looks} - {_lineage(look) for look in looks if _origin(look) in set_back}


def build_snapshot_properties(
    table: Table, heap: HeapFile, snapshot: PostgresSnapshot, pages: PageRange, *, is_first: bool
) -> dict[str, str]:
    """Snapshot properties by which :func:`find_interrupted_baseline` finds a commit.

    :param is_first: whether the commit replaces the content that was there before.
    """
    said = {
        "pages": pages,
        "is_first": is_first,
        "filenode": heap.filenode,
        "statement": snapshot.fingerprints[table.name],
    }
    return {PART_PROPERTY: json.dumps(said | {"snapshot_xmin": snapshot.xmin_horizon} | asdict(snapshot.wal_position))}


def _continues(told: Mapping[str, Any], table: Table, snapshot: PostgresSnapshot) -> bool:
    if told["snapshot_xmin"] is None or told["statement"] != snapshot.fingerprints[table.name]:
        return False
    return snapshot.wal_position.continues(_lineage(told)) and snapshot.xmax - told["snapshot_xmin"] < MAX_XID_AGE


def _set_back(looks: Iterable[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Snapshots behind which the source was when a later run looked at it.

    Its log has written what came after them a second time since, with other transactions under the same ids.

    :param looks: rows of ``audit.snapshots``, of runs that published nothing, too.
    """
    lowest: dict[tuple[int, int], WalPosition] = {}
    last: dict[tuple[Any, ...], bool] = {}
    for one in sorted(looks, key=lambda look: look["taken_at"], reverse=True):
        if one["wal_lsn"] is None:
            continue
        seen = _lineage(one)
        later = lowest.setdefault((seen.system_identifier, seen.timeline), seen)
        last.setdefault(_origin(one), later.is_behind(seen))
        if seen.is_behind(later):
            lowest[seen.system_identifier, seen.timeline] = seen
    return {origin for origin, was_behind in last.items() if was_behind}


def _origin(told: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(told[name] for name in ("run_id", *_ORIGIN))


def _lineage(told: Mapping[str, Any]) -> WalPosition:
    return WalPosition(told["system_identifier"], told["database_oid"], told["timeline"], told["wal_lsn"])


def _holds(table: LakeTable, snapshot_id: int | None) -> bool:
    """Whether main of ``table`` has the content of ``snapshot_id``: compactions replace files and no rows."""
    head = table.current_snapshot()
    while head and head.snapshot_id != snapshot_id and head.summary and head.summary.operation is Operation.REPLACE:
        if head.parent_snapshot_id == snapshot_id:
            return True
        head = table.snapshot_by_id(head.parent_snapshot_id) if head.parent_snapshot_id else None
    return head is not None and head.snapshot_id == snapshot_id
