"""The content of a table in the lake on which an incremental copy can build."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from typing import Any, Final

from pyiceberg.catalog import Catalog as Lake
from pyiceberg.table import Table as LakeTable
from pyiceberg.table.snapshots import Snapshot

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.iceberg.read.recent_rows import read_rows_since_run
from synapse_lakehouse.iceberg.write import branches
from synapse_lakehouse.postgres.rows.heap import Heap
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE, PageRange, find_remaining_pages
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.postgres.snapshot.timeline import MAX_XID_AGE, WalPosition

PAGES_PROPERTY: Final = "lakehouse.pages"
"""Iceberg snapshot property on a run's branch: the pages in the commit, and the PostgreSQL snapshot they come from."""

_SNAPSHOTS: Final = "audit.snapshots"

_SNAPSHOT_ID_COLUMNS: Final = (
    "snapshot_xmin",
    "snapshot_xmax",
    "system_identifier",
    "database_oid",
    "timeline",
    "wal_lsn",
    "server_started_at",
)
"""Columns of ``audit.snapshots`` and ``audit.ledger`` that identify a PostgreSQL snapshot."""

_COLUMNS: Final = ("run_id", "taken_at", *_SNAPSHOT_ID_COLUMNS, "state_snapshot")


@dataclass(frozen=True)
class Baseline:
    """An Iceberg snapshot of a table on which a copy builds, with its row count and the source pages it contains.

    ``since``: xmin of the oldest PostgreSQL snapshot from which the pages were read. Rows that this or a later
    transaction wrote may be missing or outdated; all other rows of the pages are current.
    """

    snapshot_id: int
    rows: int
    since: int
    pages: tuple[PageRange, ...] = (WHOLE_TABLE,)

    @property
    def is_whole(self) -> bool:
        """Whether the baseline contains all pages, so that only changed rows are missing."""
        return not find_remaining_pages(self.pages)


@dataclass(frozen=True)
class PublishedTable:
    """A table of the lake, and the row of ``audit.ledger`` for its published content, if there is one.

    ``source_was_restored``: a later run found the source at an earlier state than the published one.
    """

    table: LakeTable
    published: Mapping[str, Any] | None = None
    source_was_restored: bool = False

    def find_baseline(self, table: Table, snapshot: PostgresSnapshot) -> Baseline | None:
        """Return the published content as a baseline, if row versions show the changes between it and ``snapshot``.

        Row versions show the changes if the source's WAL history continues from the published content, and the
        catalogue reads the same columns. Main must still be at the published Iceberg snapshot, or a compaction of it.
        """
        current, published = self.table.current_snapshot(), self.published
        if not current or not published or self.source_was_restored or not _continues(published, table, snapshot):
            return None
        if not branches.has_content_of(self.table, published["snapshot_id"]):
            return None
        return Baseline(current.snapshot_id, published["rows_source"], published["snapshot_xmin"])


def read_published_tables(lake: Lake, catalogue: Catalogue) -> dict[str, PublishedTable]:
    """Return the copied tables by name, with their content in the newest release. The source is not read."""
    tables = {
        table.name: PublishedTable(lake.load_table(f"bronze.{table.name}")) for table in catalogue.copied_tables()
    }
    newest = store.read_latest_release(lake)
    return tables | _add_ledger_rows(lake, newest, tables) if newest else tables


def add_older_releases(lake: Lake, tables: Mapping[str, PublishedTable]) -> dict[str, PublishedTable]:
    """Return ``tables``, with the content of older releases for tables that the newest release lacks."""
    missing = {name: table for name, table in tables.items() if table.published is None}
    older: dict[str, PublishedTable] = {}
    for release in islice(store.iterate_newest_releases(lake), 1, None) if missing else ():
        older |= _add_ledger_rows(lake, release, missing)
        missing = {name: table for name, table in missing.items() if name not in older}
        if not missing:
            break
    return {**tables, **older}


def _add_ledger_rows(lake: Lake, release: Release, tables: Mapping[str, PublishedTable]) -> dict[str, PublishedTable]:
    snapshots = read_rows_since_run(lake.load_table(_SNAPSHOTS), release.run_id, "taken_at", _COLUMNS)
    undone = _find_undone_snapshots(_list_snapshots(snapshots.to_pylist()))
    rows = {row["table_name"]: row for row in store.read_release_ledger(lake, release) if row["table_name"] in tables}
    return {
        name: replace(tables[name], published=row, source_was_restored=_snapshot_key(row) in undone)
        for name, row in rows.items()
    }


def find_interrupted_baseline(
    lake_table: LakeTable,
    branch: str,
    table: Table,
    heap: Heap,
    snapshot: PostgresSnapshot,
    read_valid_positions: Callable[[], Collection[WalPosition]],
    count_rows: Callable[[int], int],
) -> Baseline | None:
    """Return the usable content that an interrupted run left on ``branch``, if there is any.

    :param read_valid_positions: as :func:`read_valid_wal_positions`; called only if the branch has such content.
    :param count_rows: counts the rows of an Iceberg snapshot of the table. The snapshot's summary is unsuitable: it
        still counts position deletes of data files that were replaced.
    """
    head = ancestor = lake_table.snapshot_by_name(branch)
    copied_pages: list[PageRange] = []
    since = snapshot.xmin
    while ancestor and ancestor.summary and (part := ancestor.summary.additional_properties.get(PAGES_PROPERTY)):
        properties = json.loads(part)
        if properties.get("filenodes") != heap.filenodes or not _continues(properties, table, snapshot):
            return None
        if _wal_position(properties) not in read_valid_positions():
            return None
        copied_pages.extend((first, last) for first, last in properties["pages"])
        since = min(since, properties["snapshot_xmin"])
        if properties["is_first"]:
            if head is None or not _is_ahead_of_main(lake_table, ancestor):
                return None
            return Baseline(head.snapshot_id, count_rows(head.snapshot_id), since, tuple(copied_pages))
        parent = ancestor.parent_snapshot_id
        ancestor = lake_table.snapshot_by_id(parent) if parent else None
    return None


def _is_ahead_of_main(table: LakeTable, snapshot: Snapshot | None) -> bool:
    """Return whether main can be fast-forwarded to ``snapshot``. It cannot if the table was compacted meanwhile."""
    main = table.current_snapshot()
    while main and snapshot and snapshot.snapshot_id != main.snapshot_id:
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    return main is None or snapshot is not None


def read_valid_wal_positions(lake: Lake) -> set[WalPosition]:
    """Return the WAL positions at which runs saw the source, without those undone by a later restore of the source."""
    rows = lake.load_table(_SNAPSHOTS).scan(selected_fields=_COLUMNS).to_arrow().to_pylist()
    snapshots = [row for row in _list_snapshots(rows) if row["wal_lsn"] is not None]
    undone = _find_undone_snapshots(snapshots)
    valid = {_wal_position(row) for row in snapshots}
    return valid - {_wal_position(row) for row in snapshots if _snapshot_key(row) in undone}


def build_snapshot_properties(
    table: Table, heap: Heap, snapshot: PostgresSnapshot, pages: Sequence[PageRange], *, is_first: bool
) -> dict[str, str]:
    """Return the Iceberg snapshot properties by which :func:`find_interrupted_baseline` finds a commit.

    :param is_first: whether the commit replaces all earlier content.
    """
    properties = {
        "pages": pages,
        "is_first": is_first,
        "filenodes": heap.filenodes,
        "statement": snapshot.fingerprints[table.name],
    }
    return {
        PAGES_PROPERTY: json.dumps(
            properties | {"snapshot_xmin": snapshot.xmin_horizon} | asdict(snapshot.wal_position)
        )
    }


def _continues(recorded: Mapping[str, Any], table: Table, snapshot: PostgresSnapshot) -> bool:
    if recorded["snapshot_xmin"] is None or recorded["statement"] != snapshot.fingerprints[table.name]:
        return False
    return (
        snapshot.wal_position.continues(_wal_position(recorded))
        and snapshot.xmax - recorded["snapshot_xmin"] < MAX_XID_AGE
    )


def _list_snapshots(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the PostgreSQL snapshots of rows of ``audit.snapshots``: that of main and, if there is one, of state.

    Those of state have the key ``is_state``.
    """
    of_state = [{**row, **row["state_snapshot"], "is_state": True} for row in rows if row.get("state_snapshot")]
    return [*rows, *of_state]


def _find_undone_snapshots(snapshots: Iterable[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Return the keys of snapshots that were ahead of the source in a later run, because the source was restored.

    Since the restore, the source has written that part of its WAL again, with other transactions under the same IDs.

    Main and state may have the same system identifier, if one of them is a clone of the other's disk, or is read from a
    standby of the other's cluster. Even then, their WAL positions are not comparable.

    :param snapshots: rows of :func:`_list_snapshots`, including those of runs that published nothing.
    """
    lowest: dict[tuple[bool, int, int], WalPosition] = {}
    is_undone: dict[tuple[Any, ...], bool] = {}
    for row in sorted(snapshots, key=lambda row: row["taken_at"], reverse=True):
        if row["wal_lsn"] is None:
            continue
        position = _wal_position(row)
        history = row.get("is_state", False), position.system_identifier, position.timeline
        later = lowest.setdefault(history, position)
        is_undone.setdefault(_snapshot_key(row), later.is_behind(position))
        if position.is_behind(later):
            lowest[history] = position
    return {key for key, undone in is_undone.items() if undone}


def _snapshot_key(recorded: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(recorded[name] for name in ("run_id", *_SNAPSHOT_ID_COLUMNS))


def _wal_position(recorded: Mapping[str, Any]) -> WalPosition:
    values: dict[str, Any] = {field.name: recorded.get(field.name) for field in fields(WalPosition)}
    return WalPosition(**values)
