"""Find, resume and drop the branches of runs on the branched tables."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from synapse_lakehouse.iceberg.catalog.catalog import SCHEMAS, is_unbranched

_PARALLEL_TABLES = 4


def drop_branch(catalog: Catalog, branch: str, names: Collection[str] | None = None) -> int:
    """Drop ``branch`` in every table, or in the tables ``names``; return the number of tables that had it.

    The caller holds the lease, or the run of the branch has ended.
    """
    having = [table for table in load_run_tables(catalog, names) if branch in table.refs()]
    for table in having:
        table.manage_snapshots().remove_branch(branch).commit()
    return len(having)


def resume_branch(catalog: Catalog, crashed: Sequence[str], branch: str) -> None:
    """Continue ``branch`` of bronze tables, or create it from the latest ``crashed`` branch; drop crashed branches.

    A crashed branch that is continued stays. The caller holds the lease.
    """
    for table in load_run_tables(catalog):
        refs, is_bronze = table.refs(), table.name()[0] == "bronze"
        remaining = [name for name in reversed(crashed) if name in refs]
        if remaining and is_bronze and branch not in refs:
            table.manage_snapshots().create_branch(refs[remaining[0]].snapshot_id, branch).commit()
        for name in remaining:
            if name != branch or not is_bronze:
                table.manage_snapshots().remove_branch(name).commit()


def restore_release(catalog: Catalog, tables: Mapping[str, int]) -> list[str]:
    """Set main of each table back to the newest release, and return the names of the tables whose main was ahead.

    A run that stopped while it published leaves some tables ahead. Incremental copies and builds rely on tables that
    all belong to the newest release. The caller holds the lease.

    :param tables: Iceberg snapshot ID of each table in the newest release. Other tables stay as they are.
    """
    restored = []
    for table in load_run_tables(catalog):
        name = ".".join(table.name())
        published = table.snapshot_by_id(tables.get(name, -1))
        if published and not has_content_of(table, published.snapshot_id):
            table.manage_snapshots().set_current_snapshot(published.snapshot_id).commit()
            restored.append(name)
    return restored


def has_content_of(table: Table, snapshot_id: int | None) -> bool:
    """Return whether main is at ``snapshot_id``, or at a compaction of it, which has the same rows in other files."""
    head = table.current_snapshot()
    while head and head.snapshot_id != snapshot_id and head.summary and head.summary.operation is Operation.REPLACE:
        if head.parent_snapshot_id == snapshot_id:
            return True
        head = table.snapshot_by_id(head.parent_snapshot_id) if head.parent_snapshot_id else None
    return head is not None and head.snapshot_id == snapshot_id


def list_run_tables(catalog: Catalog) -> list[str]:
    """Return the tables that runs write on branches: all except the unbranched tables (:func:`is_unbranched`)."""
    names = [".".join(name) for schema in SCHEMAS for name in catalog.list_tables(schema)]
    return [name for name in names if not is_unbranched(name)]


def load_run_tables(catalog: Catalog, names: Collection[str] | None = None) -> Iterator[Table]:
    """Yield the tables of :func:`list_run_tables`, or those of ``names`` among them."""
    table_names = [name for name in list_run_tables(catalog) if names is None or name in names]
    with ThreadPoolExecutor(_PARALLEL_TABLES) as pool:
        yield from pool.map(catalog.load_table, table_names)
