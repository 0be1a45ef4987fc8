"""What changed since a large table was built by dbt, so that only rows that follow from it are built anew.

And what there is to read in large tables for one that has fewer rows, and is built whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from synapse_lakehouse.dbt_build.incremental_models import EVENTS, LARGE_MODELS, LargeModel
from synapse_lakehouse.iceberg.read.snapshot_diff import find_changed_keys, read_newer_rows
from synapse_lakehouse.iceberg.write import input_fingerprint
from synapse_lakehouse.iceberg.write.tables import load_table_or_none

WORTH_IT: Final = 100_000
"""With fewer events a table is built anew sooner than what changed is told apart."""


@dataclass(frozen=True)
class Increment:
    """What ``model`` is built from.

    ``read``: the present snapshots of what it reads, by table. If something may be found, ``before``: the snapshots
    that its rows were made of, none where they do not say. Of a model that is built in part, ``changed``: columns of
    rows that changed since, as they were and are; ``newer``: rows of files that came since; ``fresh``: keys that the
    model does not have yet, some or all of them.
    """

    model: LargeModel
    read: Mapping[str, int | None] = field(default_factory=dict)
    before: Mapping[str, int | None] | None = None
    changed: Mapping[str, pa.Table] = field(default_factory=dict)
    newer: Mapping[str, pa.Table] = field(default_factory=dict)
    fresh: pa.Table | None = None

    @property
    def read_from(self) -> str:
        """What the snapshot of the model says of what it was made of."""
        return " ".join(f"{name}={one or ''}" for name, one in self.read.items())

    @property
    def former(self) -> dict[str, int | None]:
        """Snapshots of the tables whose former rows are asked for."""
        return {name: one for name, one in (self.before or {}).items() if self.changed and name not in self.changed}

    @property
    def changes(self) -> bool:
        """Whether anything changed that is asked for; compaction, for one, changes nothing in part."""
        if not self.changed:
            return self.read != self.before
        return any(rows.num_rows for rows in self.changed.values()) or any(
            self.read[name] != one for name, one in self.former.items()
        )

    def known(self, keys: pa.Table) -> pa.Table:
        """Those of some keys that the model may have already."""
        return keys if self.fresh is None else _without(keys, self.fresh)


def since_built(catalog: Catalog, branch: str, worth_it: int = WORTH_IT) -> tuple[Increment, ...]:
    """What the large models on ``branch`` have to be built from."""
    tables = {name: load_table_or_none(catalog, name) for model in LARGE_MODELS for name in model.made_of}
    now = {name: input_fingerprint.find_snapshot(table, branch) for name, table in tables.items()}
    many = int(input_fingerprint.get_snapshot_property(now[EVENTS], "total-records") or 0) >= worth_it
    present = {name: snapshot.snapshot_id if snapshot else None for name, snapshot in now.items()}

    @cache
    def rows(name: str, wanted: tuple[str, ...], before: int | None) -> pa.Table | None:
        # Models that were built side by side ask for the same.
        return _rows(tables[name], wanted, before, present[name])

    def changed(model: LargeModel, before: Mapping[str, int | None]) -> dict[str, pa.Table] | None:
        found = {}
        for name, wanted in model.made_of.items():
            of_table = rows(name, wanted, before[name])
            if of_table is None:
                return None
            if wanted:
                found[name] = of_table
        return found

    def increment(model: LargeModel) -> Increment:
        read = {name: present[name] for name in model.made_of}
        said = input_fingerprint.get_snapshot_property(
            input_fingerprint.find_snapshot(load_table_or_none(catalog, model.table), branch), "read-from"
        )
        before = _read(said or "")
        if model.is_whole:
            return Increment(model, read, before if many else None)
        found = changed(model, before) if many and before.keys() == read.keys() else None
        if found is None:
            return Increment(model, read)
        newer = {name: _newer(tables[name], before[name], read[name]) for name in model.mostly_newer}
        of = model.row_of
        fresh = _fresh(tables[of], before[of], read[of], found[of]) if of else None
        return Increment(model, read, before, found, newer, fresh)

    return tuple(map(increment, LARGE_MODELS))


def _rows(table: Table | None, columns: tuple[str, ...], before: int | None, now: int | None) -> pa.Table | None:
    """``columns`` of rows that changed; None where that cannot be known."""
    if table is None or (before is None) is not (now is None):
        return None
    nothing = pa.schema([table.schema().as_arrow().field(name) for name in columns]).empty_table()
    if before is None or now is None:
        return nothing
    if not columns:
        return nothing if table.snapshot_by_id(before) else None
    rows = find_changed_keys(table, before, now, columns)
    return None if rows is None else rows.group_by(list(columns)).aggregate([])


def _newer(table: Table | None, before: int | None, now: int | None) -> pa.Table:
    if table is None:
        raise ValueError("A table that is not there has no rows that changed.")
    return read_newer_rows(table, before, now) if before and now else table.schema().as_arrow().empty_table()


def _fresh(table: Table | None, before: int | None, now: int | None, changed: pa.Table) -> pa.Table | None:
    """Those of the ``changed`` keys that the table did not have before."""
    if table is None or before is None or now is None:
        return None
    former = find_changed_keys(table, before, now, changed.column_names, came=False)
    return None if former is None else _without(changed, former)


def _without(keys: pa.Table, others: pa.Table) -> pa.Table:
    (name,) = keys.column_names
    known = others[name].cast(keys[name].type).combine_chunks()
    return keys.filter(pc.invert(pc.is_in(keys[name], value_set=known)))


def _read(written: str) -> dict[str, int | None]:
    pairs = (one.split("=") for one in written.split())
    return {name: int(one) if one else None for name, one in pairs}
