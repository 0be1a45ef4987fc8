"""The branches that runs leave on the tables: found, listed and dropped."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from synapse_lakehouse.lake.tables import SCHEMAS
from synapse_lakehouse.run import is_branch

_AT_ONCE = 4


@dataclass(frozen=True)
class Branch:
    """A run's branch: the tables that have it, and when the last of them was written (None: on none was written)."""

    name: str
    tables: tuple[str, ...]
    written_at: datetime | None


def leftovers(catalog: Catalog) -> list[Branch]:
    """All branches of runs, by name. A run that is under way has one too: see :func:`lease.holding`."""
    found: dict[str, list[tuple[str, int]]] = {}
    for table in branched_tables(catalog):
        for ref, pointer in table.refs().items():
            if is_branch(ref):
                snapshot = table.snapshot_by_id(pointer.snapshot_id)
                found.setdefault(ref, []).append((_name(table), snapshot.timestamp_ms if snapshot else 0))
    return [
        Branch(
            name,
            tuple(sorted(table for table, _ in on)),
            datetime.fromtimestamp(max(written for _, written in on) / 1000, UTC),
        )
        for name, on in sorted(found.items())
    ]


def drop(catalog: Catalog, branch: str) -> int:
    """Remove ``branch`` from every table that has it; how many had it.

    Whoever calls this holds the lease, or knows that the branch's run is over.
    """
    having = [table for table in branched_tables(catalog) if branch in table.refs()]
    for table in having:
        table.manage_snapshots().remove_branch(branch).commit()
    return len(having)


def branched_tables(catalog: Catalog) -> Iterator[Table]:
    """The tables that runs write on branches: all but audit."""
    names = [name for schema in SCHEMAS if schema != "audit" for name in catalog.list_tables(schema)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(catalog.load_table, names)


def _name(table: Table) -> str:
    return ".".join(table.name())
