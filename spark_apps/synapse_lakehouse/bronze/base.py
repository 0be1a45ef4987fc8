"""What the published tables hold, where a copy can go on from it instead of starting over."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog as Lake
from pyiceberg.table import Table as LakeTable
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.snapshots import Snapshot as LakeSnapshot

from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.lake import audit
from synapse_lakehouse.source.lineage import HORIZON, Lineage
from synapse_lakehouse.source.snapshot import Snapshot


@dataclass(frozen=True)
class Base:
    """A published table: its Iceberg snapshot and its rows.

    ``since``: the oldest transaction that the source's snapshot of it did not see the end of. Rows that this or a later
    one wrote may be missing or outdated in it; all others are as they were.
    """

    snapshot_id: int
    rows: int
    since: int


def bases(lake: Lake, catalogue: Catalogue, snapshot: Snapshot) -> dict[str, Base]:
    """By name, the tables that ``snapshot`` can be told apart from by row versions; the others are copied whole.

    A table is among them when the source's history goes on from what was published, the catalogue reads the same of
    it, and main is still what that run wrote, or a compaction of it.
    """
    found: dict[str, Base] = {}
    missing = {table.name: table for table in catalogue.copied()}
    for release in reversed(audit.releases(lake)):
        if not missing:
            break
        for row in audit.of_run(lake, "audit.ledger", release.run_id):
            table = missing.pop(row["table_name"], None)
            if table is None:
                continue
            head = lake.load_table(f"bronze.{table.name}")
            if _continues(row, table, snapshot) and _holds(head, row["snapshot_id"]):
                found[table.name] = Base(row["snapshot_id"], rows(head.current_snapshot()), row["snapshot_xmin"])
    return found


def rows(snapshot: LakeSnapshot | None) -> int:
    """Rows that readers of an Iceberg snapshot see."""
    if snapshot is None or snapshot.summary is None:
        return 0
    total = {name: int(snapshot.summary.additional_properties.get(f"total-{name}") or 0) for name in _TOTALS}
    return total["records"] - total["position-deletes"]


_TOTALS = ("records", "position-deletes")


def _continues(row: Mapping[str, Any], table: Table, snapshot: Snapshot) -> bool:
    if row["snapshot_xmin"] is None or row["statement"] != snapshot.fingerprints[table.name]:
        return False
    then = Lineage(row["system_identifier"], row["database_oid"], row["timeline"], row["wal_lsn"])
    return snapshot.lineage.continues(then) and snapshot.xmax - row["snapshot_xmin"] < HORIZON


def _holds(table: LakeTable, snapshot_id: int | None) -> bool:
    """Whether main of ``table`` has the content of ``snapshot_id``: compactions replace files and no rows."""
    head = table.current_snapshot()
    while head and head.snapshot_id != snapshot_id and head.summary and head.summary.operation is Operation.REPLACE:
        if head.parent_snapshot_id == snapshot_id:
            return True
        head = table.snapshot_by_id(head.parent_snapshot_id) if head.parent_snapshot_id else None
    return head is not None and head.snapshot_id == snapshot_id
