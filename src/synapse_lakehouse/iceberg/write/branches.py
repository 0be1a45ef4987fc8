"""Find, resume and drop the branches of runs on the branched tables."""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

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
    """Continue ``branch`` of bronze tables, or create it from the latest ``crashed`` branch; drop all other branches.

    The caller holds the lease.
    """
    for table in load_run_tables(catalog):
        refs, is_bronze = table.refs(), table.name()[0] == "bronze"
        remaining = [name for name in reversed(crashed) if name in refs]
        if remaining and is_bronze and branch not in refs:
            table.manage_snapshots().create_branch(refs[remaining[0]].snapshot_id, branch).commit()
        for name in remaining:
            if name != branch or not is_bronze:
                table.manage_snapshots().remove_branch(name).commit()


def list_run_tables(catalog: Catalog) -> list[str]:
    """Return the tables that runs write on branches: all except audit tables and the replication tap's commands."""
    names = [".".join(name) for schema in SCHEMAS for name in catalog.list_tables(schema)]
    return [name for name in names if not is_unbranched(name)]


def load_run_tables(catalog: Catalog, names: Collection[str] | None = None) -> Iterator[Table]:
    """Yield the tables of :func:`list_run_tables`, or those of ``names`` among them."""
    table_names = [name for name in list_run_tables(catalog) if names is None or name in names]
    with ThreadPoolExecutor(_PARALLEL_TABLES) as pool:
        yield from pool.map(catalog.load_table, table_names)
