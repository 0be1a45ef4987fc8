"""The branches that runs leave on the tables: found and dropped."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from synapse_lakehouse.lake.catalog import SCHEMAS

_AT_ONCE = 4


def drop(catalog: Catalog, branch: str) -> int:
    """Remove ``branch`` from every table that has it; how many had it.

    Whoever calls this holds the lease, or knows that the branch's run is over.
    """
    having = [table for table in branched_tables(catalog) if branch in table.refs()]
    for table in having:
        table.manage_snapshots().remove_branch(branch).commit()
    return len(having)


def take_over(catalog: Catalog, crashed: str, branch: str) -> None:
    """Let ``branch`` go on from what a crashed run copied to bronze on its own branch, which is dropped.

    Whoever calls this holds the lease.
    """
    for table in branched_tables(catalog):
        if head := table.snapshot_by_name(crashed):
            if table.name()[0] == "bronze":
                table.manage_snapshots().create_branch(head.snapshot_id, branch).commit()
            table.manage_snapshots().remove_branch(crashed).commit()


def branched_tables(catalog: Catalog) -> Iterator[Table]:
    """The tables that runs write on branches: all but audit."""
    names = [name for schema in SCHEMAS if schema != "audit" for name in catalog.list_tables(schema)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(catalog.load_table, names)
