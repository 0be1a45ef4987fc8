"""What changed since a large table was built by dbt, so that only rows that follow from it are built anew.

And what there is to read in large tables for one that has fewer rows, and is built whole.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from synapse_lakehouse.lake import remaking
from synapse_lakehouse.lake.amending import take_away
from synapse_lakehouse.lake.changes import changed_keys, newer_rows
from synapse_lakehouse.lake.places import Places, places
from synapse_lakehouse.lake.tables import load_or_none
from synapse_lakehouse.modelling import concerned
from synapse_lakehouse.settings import Settings

WORTH_IT: Final = 100_000
"""With fewer events a table is built anew sooner than what changed is told apart."""

_EVENTS: Final = "bronze.events"
_JSON: Final[dict[str, tuple[str, ...]]] = {
    _EVENTS: ("event_id",),
    "bronze.event_json": ("event_id",),
    "bronze.rooms": ("room_id",),
}
_MODELS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "silver.event_fields": _JSON,
    "silver.redactions": _JSON | {"bronze.rejections": ("event_id",), "bronze.redactions": ("event_id", "redacts")},
    "silver.event_circumstances": _JSON
    | {
        "bronze.rejections": ("event_id",),
        "bronze.redactions": ("event_id", "redacts"),
        "bronze.event_to_state_groups": ("event_id",),
        "bronze.ex_outlier_stream": ("event_id",),
        "bronze.partial_state_events": ("event_id",),
        "bronze.un_partial_stated_event_stream": ("event_id",),
        "bronze.erased_users": ("user_id",),
        "bronze.room_retention": ("room_id",),
        "bronze.current_state_events": ("event_id",),
        "silver.state_positions": (),
        "silver.state_intervals": (),
        "silver.state_faults": (),
    },
}
"""The tables that each model is made of, with the columns of changed rows that it asks for; of tables without any it
asks for the former rows."""

_WHOLE: Final[Mapping[str, tuple[str, ...]]] = {
    "gold.visibility_intervals": (
        *_MODELS["silver.event_circumstances"],
        "bronze.room_memberships",
        "bronze.local_current_membership",
    ),
}
"""Models that are built whole, with the tables that they, and those that they read, are made of."""

_NEWER: Final = {"silver.event_fields": (_EVENTS, "bronze.event_json")}
"""Tables of which a model mostly reads rows that came since."""

_AFTER: Final[Mapping[str, str]] = {
    "silver.redactions": "silver.event_fields",
    "silver.event_circumstances": "silver.event_fields",
    "gold.visibility_intervals": "silver.event_circumstances",
}
"""The last model that has to be built before what another one is made of can be looked for."""

_MOST: Final[Mapping[str, int]] = {
    "silver.event_fields": 1_000_000,
    "silver.redactions": 100_000,
    "silver.event_circumstances": 100_000,
    "gold.visibility_intervals": 2_000_000,
}
"""Where more rows of a model, or of others that are read for them, are concerned, it is made of whatever there is."""

_FOUND: Final = "synapse_lakehouse.found."
"""Settings of a Spark session that name what was found of each model."""
_ANEW: Final = "anew"
"""What they say where rows may be missing that have to be made again, whatever comes."""


@dataclass(frozen=True)
class Increment:
    """What ``model`` is built from.

    ``read``: the present snapshots of what it reads, by table. If something may be found, ``before``: the snapshots
    that its rows were made of, none where they do not say. Of a model that is built in part, ``changed``: columns of
    rows that changed since, as they were and are; ``newer``: rows of files that came since.
    """

    model: str
    read: Mapping[str, int | None]
    before: Mapping[str, int | None] | None = None
    changed: Mapping[str, pa.Table] = field(default_factory=dict)
    newer: Mapping[str, pa.Table] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model's, as dbt has it."""
        return self.model.partition(".")[2]

    @property
    def after(self) -> str:
        """The model that has to be built before what is found can be looked for, as dbt has it; empty if none has."""
        return _AFTER.get(self.model, "").partition(".")[2]

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


@dataclass(frozen=True)
class Found:
    """``tables`` to make a model of, and that in words. Of one that is built in part, its own ``table``, its snapshot
    ``now``, and the places of rows that are ``outdated``."""

    tables: Mapping[str, pa.Table]
    words: str
    table: Table | None = None
    now: Snapshot | None = None
    outdated: Places = field(default_factory=dict)


@dataclass(frozen=True)
class Increments:
    """What all large models are built from."""

    models: tuple[Increment, ...]
    catalog: Catalog
    most: Mapping[str, int] = field(default_factory=lambda: _MOST)

    @property
    def names(self) -> set[str]:
        """The models', as dbt has them."""
        return {one.name for one in self.models}

    def variables(self) -> dict[str, Any]:
        """What the materialization ``rebuild`` asks for."""
        return {"read_from": {one.name: _written(one.read) for one in self.models}}

    def look(self, settings: Settings, branch: str, model: str) -> Found | None:
        """What is found of a model, from the tables as they are on ``branch``.

        Has to be done when what it asks for is built, and before the model is. May be done in any thread.

        :returns: None where nothing is looked for, or too much was found.
        """
        one = self._named(model)
        if one.before is None or not one.changes:
            return None
        found = concerned.find(settings, branch, model, one.changed, one.former, one.newer, self.most[one.model])
        if found is None:
            return None
        words = f"{sum(rows.num_rows for rows in found.values()):,} rows to read"
        newer = {table.partition(".")[2]: rows for table, rows in one.newer.items()}
        found |= {f"newer_{table}": rows for table, rows in newer.items() if f"read_{table}" not in found}
        if not one.changed:
            return Found(found, words)
        table = self.catalog.load_table(one.model)
        now, keys = remaking.snapshot_of(table, branch), found["replaced"]
        outdated = places(table, now.snapshot_id, keys.column_names, keys) if now and keys.num_rows else {}
        return Found(found, f"{keys.num_rows:,} rows are concerned", table, now, outdated)

    def forget(self, spark: SparkSession, model: str) -> None:
        """Let the materialization know of nothing that was found of a model, as before in a session that lasts."""
        spark.conf.unset(_FOUND + model)

    def hand(self, spark: SparkSession, branch: str, model: str, found: Found | None) -> None:
        """Make views ``<model>_<name>`` of what was found of a model, and tell the materialization their names.

        Rows that are replaced are taken away on ``branch``.
        """
        if found is None:
            return
        for name, rows in found.tables.items():
            spark.createDataFrame(rows).createOrReplaceTempView(f"{model}_{name}")
        if found.table and found.now:
            spark.conf.set(_FOUND + model, _ANEW)
            # From now on the table does not say what it was made of, so that nobody goes on from it.
            rules = remaking.said(found.now, "made-by") or ""
            take_away(spark, found.table, branch, found.now.snapshot_id, found.outdated, {"made-by": rules})
        spark.conf.set(_FOUND + model, ",".join(found.tables))

    def _named(self, model: str) -> Increment:
        (one,) = (one for one in self.models if one.name == model)
        return one


def of_models(catalog: Catalog, branch: str, worth_it: int = WORTH_IT) -> Increments:
    """What the large models on ``branch`` have to be built from."""
    names = {name: None for of in (*_MODELS.values(), *_WHOLE.values()) for name in of}
    tables = {name: load_or_none(catalog, name) for name in names}
    now = {name: remaking.snapshot_of(table, branch) for name, table in tables.items()}
    many = int(remaking.said(now[_EVENTS], "total-records") or 0) >= worth_it
    present = {name: snapshot.snapshot_id if snapshot else None for name, snapshot in now.items()}

    @cache
    def rows(name: str, wanted: tuple[str, ...], before: int | None) -> pa.Table | None:
        # Models that were built side by side ask for the same.
        return _rows(tables[name], wanted, before, present[name])

    def changed(columns: Mapping[str, tuple[str, ...]], before: Mapping[str, int | None]) -> dict[str, pa.Table] | None:
        found = {}
        for name, wanted in columns.items():
            of_table = rows(name, wanted, before[name])
            if of_table is None:
                return None
            if wanted:
                found[name] = of_table
        return found

    def made_from(model: str) -> dict[str, int | None]:
        said = remaking.said(remaking.snapshot_of(load_or_none(catalog, model), branch), "read-from")
        return _read(said or "")

    def increments() -> Iterator[Increment]:
        for model, columns in _MODELS.items():
            read = {name: present[name] for name in columns}
            before = made_from(model)
            found = changed(columns, before) if many and before.keys() == read.keys() else None
            if found is None:
                yield Increment(model, read)
            else:
                newer = {name: _newer(tables[name], before[name], read[name]) for name in _NEWER.get(model, ())}
                yield Increment(model, read, before, found, newer)
        for model, names in _WHOLE.items():
            read = {name: present[name] for name in names}
            yield Increment(model, read, made_from(model) if many else None)

    return Increments(tuple(increments()), catalog)


def _rows(table: Table | None, columns: tuple[str, ...], before: int | None, now: int | None) -> pa.Table | None:
    """``columns`` of rows that changed; None where that cannot be known."""
    if table is None or (before is None) is not (now is None):
        return None
    nothing = pa.schema([table.schema().as_arrow().field(name) for name in columns]).empty_table()
    if before is None or now is None:
        return nothing
    if not columns:
        return nothing if table.snapshot_by_id(before) else None
    rows = changed_keys(table, before, now, columns)
    return None if rows is None else rows.group_by(list(columns)).aggregate([])


def _newer(table: Table | None, before: int | None, now: int | None) -> pa.Table:
    if table is None:
        raise ValueError("A table that is not there has no rows that changed.")
    return newer_rows(table, before, now) if before and now else table.schema().as_arrow().empty_table()


def _written(snapshots: Mapping[str, int | None]) -> str:
    return " ".join(f"{name}={one or ''}" for name, one in snapshots.items())


def _read(written: str) -> dict[str, int | None]:
    pairs = (one.split("=") for one in written.split())
    return {name: int(one) if one else None for name, one in pairs}
