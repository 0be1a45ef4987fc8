"""What the lake holds of a table already, where a copy can go on from it instead of starting over."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pyiceberg.catalog import Catalog as Lake
from pyiceberg.table import Table as LakeTable
from pyiceberg.table.snapshots import Operation

from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.lake import audit
from synapse_lakehouse.lake.recent import since_run
from synapse_lakehouse.source.lineage import HORIZON, Lineage
from synapse_lakehouse.source.pages import WHOLE, PageRange, remaining
from synapse_lakehouse.source.snapshot import Heap, Snapshot

PART: Final = "lakehouse.part"
"""Property of a commit on a run's branch: which pages of which snapshot of the source the branch has since."""

_LOOKS: Final = "audit.snapshots"

_ORIGIN: Final = ("snapshot_xmin", "snapshot_xmax", "system_identifier", "database_oid", "timeline", "wal_lsn")
"""Columns of ``audit.snapshots`` and ``audit.ledger`` that tell snapshots of the source apart."""

_LOOK: Final = ("run_id", "taken_at", *_ORIGIN)


@dataclass(frozen=True)
class Base:
    """An Iceberg snapshot of a table, its rows, and the pages of the source that they came from.

    ``since``: the oldest transaction that the source's snapshot of it did not see the end of. Rows that this or a later
    one wrote may be missing or outdated in it; all others of its pages are as they were. ``heap_pages``: how many pages
    the source's table had then, if that was written down.
    """

    snapshot_id: int
    rows: int
    since: int
    pages: tuple[PageRange, ...] = (WHOLE,)
    heap_pages: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it has all pages, so that it is a copy that only has to be brought up to date."""
        return not remaining(self.pages)


@dataclass(frozen=True)
class Held:
    """A table of the lake, and the row of ``audit.ledger`` of its published content; None where that is of no use.

    It is of none if main is neither what that run wrote nor a compaction of it, or if a run since found the source
    behind what it was copied of.
    """

    table: LakeTable
    published: Mapping[str, Any] | None = None

    def base(self, table: Table, snapshot: Snapshot) -> Base | None:
        """What is published, where ``snapshot`` can be told apart from it by row versions: if the source's history goes
        on from it and the catalogue reads the same of ``table``."""
        current = self.table.current_snapshot()
        if not current or not self.published or not _continues(self.published, table, snapshot):
            return None
        said = self.published
        return Base(current.snapshot_id, said["rows_source"], said["snapshot_xmin"], heap_pages=said["heap_pages"])


def held(lake: Lake, catalogue: Catalogue) -> dict[str, Held]:
    """By name, what the lake holds of the tables that are copied. Asks the source nothing."""
    found = {table.name: Held(lake.load_table(f"bronze.{table.name}")) for table in catalogue.copied()}
    missing = set(found)
    for release in audit.newest_first(lake):
        looks = since_run(lake.load_table(_LOOKS), release.run_id, "taken_at", _LOOK)
        set_back = _set_back(looks.to_pylist())
        for row in audit.ledger_of(lake, release):
            if (name := row["table_name"]) in missing:
                missing.remove(name)
                if _origin(row) not in set_back and _holds(found[name].table, row["snapshot_id"]):
                    found[name] = replace(found[name], published=row)
        if not missing:
            break
    return found


def interrupted(
    held: LakeTable,
    branch: str,
    table: Table,
    heap: Heap,
    snapshot: Snapshot,
    lasting: Callable[[], Collection[Lineage]],
    count: Callable[[int], int],
) -> Base | None:
    """What an attempt that ended before its time left on ``branch``, as far as it is of use.

    :param lasting: see :func:`lasting`; asked for only if there is something.
    :param count: counts the rows of an Iceberg snapshot of the table. Its summary cannot tell: deletes of files that
        were replaced since still count there.
    """
    head = at = held.snapshot_by_name(branch)
    done: list[PageRange] = []
    since = snapshot.xmin
    while at and at.summary and (part := at.summary.additional_properties.get(PART)):
        said = json.loads(part)
        if said["filenode"] != heap.filenode or not _continues(said, table, snapshot):
            return None
        if _lineage(said) not in lasting():
            return None
        done.append(tuple(said["pages"]))
        since = min(since, said["snapshot_xmin"])
        if said["is_first"]:
            return Base(head.snapshot_id, count(head.snapshot_id), since, tuple(done)) if head else None
        at = held.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id else None
    return None


def lasting(lake: Lake) -> set[Lineage]:
    """Where in its history any run saw the source, but for where it was set back from since."""
    rows = lake.load_table(_LOOKS).scan(selected_fields=_LOOK).to_arrow().to_pylist()
    looks = [look for look in rows if look["wal_lsn"] is not None]
    set_back = _set_back(looks)
    return {_lineage(look) for look in looks} - {_lineage(look) for look in looks if _origin(look) in set_back}


def told(table: Table, heap: Heap, snapshot: Snapshot, pages: PageRange, *, is_first: bool) -> dict[str, str]:
    """Properties of a commit by which :func:`interrupted` finds it. ``is_first``: what was there before is gone."""
    said = {
        "pages": pages,
        "is_first": is_first,
        "filenode": heap.filenode,
        "statement": snapshot.fingerprints[table.name],
    }
    return {PART: json.dumps(said | {"snapshot_xmin": snapshot.xmin} | asdict(snapshot.lineage))}


def _continues(told: Mapping[str, Any], table: Table, snapshot: Snapshot) -> bool:
    if told["snapshot_xmin"] is None or told["statement"] != snapshot.fingerprints[table.name]:
        return False
    return snapshot.lineage.continues(_lineage(told)) and snapshot.xmax - told["snapshot_xmin"] < HORIZON


def _set_back(looks: Iterable[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Snapshots behind which the source was when a later run looked at it.

    Its log has written what came after them a second time since, with other transactions under the same ids.

    :param looks: rows of ``audit.snapshots``, of runs that published nothing, too.
    """
    lowest: dict[tuple[int, int], Lineage] = {}
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


def _lineage(told: Mapping[str, Any]) -> Lineage:
    return Lineage(told["system_identifier"], told["database_oid"], told["timeline"], told["wal_lsn"])


def _holds(table: LakeTable, snapshot_id: int | None) -> bool:
    """Whether main of ``table`` has the content of ``snapshot_id``: compactions replace files and no rows."""
    head = table.current_snapshot()
    while head and head.snapshot_id != snapshot_id and head.summary and head.summary.operation is Operation.REPLACE:
        if head.parent_snapshot_id == snapshot_id:
            return True
        head = table.snapshot_by_id(head.parent_snapshot_id) if head.parent_snapshot_id else None
    return head is not None and head.snapshot_id == snapshot_id
