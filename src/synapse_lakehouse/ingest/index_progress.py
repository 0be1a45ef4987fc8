"""The progress of each index's comparison with the copy. A pass compares all entries of an index, over several runs."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.ingest.index_fault_rows import count_recorded_faults
from synapse_lakehouse.ingest.snapshot_session import SnapshotSession
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.indexes.btree_index import BtreeIndex, read_indexes
from synapse_lakehouse.postgres.indexes.index_scan_sql import Key
from synapse_lakehouse.postgres.indexes.key_range import to_spark_predicate
from synapse_lakehouse.postgres.indexes.range_scan import IndexScan, ScannedRange

_TABLE: Final = "audit.index_checks"
_FIRST_ENTRIES: Final = 5_000
FEWEST_ENTRIES: Final = 100
_MAX_RECORDED_FAULTS: Final = 100_000
"""Number of recorded faults from which on an index is read again only after a rebuild."""
_NEVER: Final = datetime.fromtimestamp(0, UTC)

_State = Mapping[tuple[str, int], Mapping[str, Any]]
"""By index name and filenode, the row of ``audit.index_checks`` of the last published run that read the index."""


@dataclass
class IndexProgress:
    """An index, the connection to its database, and the ranges of it that this run read.

    * ``number``: number of the pass. ``first``: key at which this run continues the pass; None: start of the index.
    * ``not_checked``: why a run had to stop in the index. Until this run reads the index, the reason is that of the
      previous run. ``stopped_at``: time at which the previous run stopped, if it had to stop.
    * ``count``: number of entries that the source should read in about a second.
    * ``next``: key at which the next run continues. ``is_finished``: whether this run finished the pass.
    """

    connection: Connection
    index: BtreeIndex
    table: Table
    number: int = 1
    first: Key | None = None
    finished_at: datetime | None = None
    count: int = _FIRST_ENTRIES
    not_checked: str = ""
    stopped_at: datetime | None = None
    scan: IndexScan | None = None
    ranges: list[ScannedRange] = field(default_factory=list)
    seconds: float = 0.0
    faults: int = 0
    next: Key | None = None
    is_finished: bool = False

    def __post_init__(self) -> None:
        self.next = self.first

    @property
    def identifying_columns(self) -> list[str]:
        """Columns that identify a row and its room, without the key columns of the index."""
        plain = [column.name for column in self.table.columns if column.projection is None]
        wanted = dict.fromkeys([*self.table.primary_key, "room_id"])
        return [name for name in wanted if name in plain and name not in self.index.columns]

    def row(self, now: datetime) -> dict[str, Any]:
        """Return the row of ``audit.index_checks``."""
        return {
            "table_name": self.table.name,
            "index_name": self.index.name,
            "filenode": self.index.filenode,
            "entries": self.index.entries,
            "pass": self.number + self.is_finished,
            "next_key": None if self.next is None else json.dumps(self.next),
            "entries_checked": sum(part.digest.rows for part in self.ranges),
            "seconds": self.seconds,
            "faults": self.faults,
            "not_checked": self.not_checked or None,
            "finished_at": now if self.is_finished else self.finished_at,
            "written_at": now,
        }


def list_indexes_by_age(session: SnapshotSession) -> tuple[list[IndexProgress], list[dict[str, Any]]]:
    """Return the indexes in the order of comparison, and rows of ``audit.index_checks`` for all other indexes.

    The index whose pass is not finished comes first. The other indexes follow in the order in which their last passes
    ended. If a run had to stop in an index, the time of this stop counts instead, so that all other indexes have their
    turn.
    """
    state, recorded = _read_state(session.app.catalog), count_recorded_faults(session.app.catalog)
    progress, uncovered = list[IndexProgress](), list[dict[str, Any]]()
    for table in session.catalogue.copied_tables():
        connection = session.get_exported(table.database).connection
        indexes = read_indexes(connection, table)
        now = datetime.now(UTC)
        for name, reason in indexes.uncovered.items():
            row = {"index_name": name, "filenode": indexes.filenodes[name], "not_checked": reason}
            uncovered.append({"table_name": table.name, "written_at": now, **row})
        for index in indexes.checkable:
            resumed = _resume(connection, index, table, state.get((index.name, index.filenode)))
            if reason := _find_reason(resumed, recorded[index.name, index.filenode]):
                uncovered.append({**resumed.row(now), "not_checked": reason})
            else:
                progress.append(resumed)
    ordered = sorted(
        progress,
        key=lambda unit: (
            unit.first is None or unit.stopped_at is not None,
            unit.stopped_at or unit.finished_at or _NEVER,
            unit.index.entries,
        ),
    )
    return ordered, uncovered


def _resume(connection: Connection, index: BtreeIndex, table: Table, last: Mapping[str, Any] | None) -> IndexProgress:
    unit = IndexProgress(connection, index, table)
    if last:
        unit.number, unit.finished_at = last["pass"], last["finished_at"]
        unit.first = unit.next = tuple(json.loads(last["next_key"])) if last["next_key"] else None
        unit.not_checked = last["not_checked"] or ""
        unit.stopped_at = last["written_at"] if last["not_checked"] else None
        pace = int(last["entries_checked"] / last["seconds"])
        unit.count = min(max(pace, FEWEST_ENTRIES), _FIRST_ENTRIES)
    return unit


def _find_reason(unit: IndexProgress, recorded_faults: int) -> str:
    """Return why the run does not read the index: many known faults, or Spark cannot select a range; else ""."""
    index = unit.index
    if recorded_faults >= _MAX_RECORDED_FAULTS:
        return f"{recorded_faults:,} of its faults are recorded; the index is read again after a REINDEX"
    if index.has_expressions:
        return "its key has expressions"
    if not index.follows_bytes:
        return "it does not sort text by bytes (collation C), or not in ascending order with NULL last"
    if to_spark_predicate(index) is None:
        return "Spark may evaluate its condition differently from PostgreSQL"
    kinds = {unit.table.column(name).data_type for name in (*index.columns, *unit.identifying_columns)}
    return "one of the columns is not text, integer or boolean" if "double" in kinds else ""


def _read_state(catalog: Catalog) -> _State:
    """Return the last rows of published runs. Findings of other runs are lost, so their ranges are read again."""
    published = {release.run_id: release.accepted_at for release in store.read_releases(catalog)}
    rows: Iterable[dict[str, Any]] = catalog.load_table(_TABLE).scan().to_arrow().sort_by("written_at").to_pylist()
    read = (row for row in _select_published(rows, published) if row["seconds"])
    return {(row["index_name"], row["filenode"]): row for row in read}


def _select_published(rows: Iterable[dict[str, Any]], published: Mapping[str, datetime]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row["run_id"] in published and row["written_at"] <= published[row["run_id"]]:
            yield row
