"""What large tables are made of: found, made into rows where that can be, and handed over to dbt."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.dbt_build import concerned, duckdb_build
from synapse_lakehouse.dbt_build.changed_inputs import WORTH_IT, Increment, since_built
from synapse_lakehouse.iceberg.write import input_fingerprint
from synapse_lakehouse.iceberg.write.places import Places, places
from synapse_lakehouse.iceberg.write.position_deletes import delete_rows

_FOUND: Final = "synapse_lakehouse.found."
"""Settings of a Spark session that name what was found of each model."""
_ANEW: Final = "anew"
"""What they say where rows may be missing that have to be made again, whatever comes."""


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
    most: int | None = None
    """Instead of each model's own."""

    @property
    def names(self) -> set[str]:
        """The models', as dbt has them."""
        return {one.model.name for one in self.models}

    def variables(self) -> dict[str, Any]:
        """What the materialization ``replace_on_branch`` asks for."""
        return {"read_from": {one.model.name: one.read_from for one in self.models}}

    def look(self, settings: Settings, branch: str, model: str) -> Found | None:
        """What is found of a model, from the tables as they are on ``branch``.

        Has to be done when what it asks for is built, and before the model is. May be done in any thread.

        :returns: None where nothing is looked for, or too much was found.
        """
        one = self._named(model)
        if one.before is None or not one.changes:
            return None
        most = one.model.most if self.most is None else self.most
        found = concerned.find(settings, branch, model, one.changed, one.former, one.newer, most)
        if found is None:
            return None
        to_read = sum(rows.num_rows for rows in found.values())
        newer = {table.partition(".")[2]: rows for table, rows in one.newer.items()}
        found |= {f"newer_{table}": rows for table, rows in newer.items() if f"read_{table}" not in found}
        if not one.changed:
            return Found(found, f"{to_read:,} rows to read")
        table, concerned_rows = self.catalog.load_table(one.model.table), found["replaced"].num_rows
        return Found(
            found, f"{concerned_rows:,} rows are concerned", table, input_fingerprint.find_snapshot(table, branch)
        )

    def make(self, settings: Settings, branch: str, model: str, found: Found, sql: str) -> Found:
        """What was found of a model, with the places of its outdated rows; where DuckDB can make them, the rows that
        ``sql``, dbt's, makes of it instead of what was found.

        :raises LakeReadError: when the lake cannot be read.
        """
        one = self._named(model)
        with ThreadPoolExecutor(1) as pool:
            outdated = pool.submit(_outdated, one, found)
            tables = found.tables
            if not one.model.reads_json:
                kept = {name: rows for name, rows in tables.items() if name == "replaced"}
                tables = kept | {"made": duckdb_build.made(settings, branch, sql, tables)}
            return replace(found, tables=tables, outdated=outdated.result())

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
            rules = input_fingerprint.get_snapshot_property(found.now, "built-by") or ""
            delete_rows(spark, found.table, branch, found.now.snapshot_id, found.outdated, {"built-by": rules})
        spark.conf.set(_FOUND + model, ",".join(found.tables))

    def _named(self, model: str) -> Increment:
        (one,) = (one for one in self.models if one.model.name == model)
        return one


def _outdated(one: Increment, found: Found) -> Places:
    if not found.table or not found.now:
        return {}
    known = one.known(found.tables["replaced"])
    return places(found.table, found.now.snapshot_id, known.column_names, known) if known.num_rows else {}


def of_models(catalog: Catalog, branch: str, worth_it: int = WORTH_IT) -> Increments:
    """What the large models on ``branch`` have to be built from."""
    return Increments(since_built(catalog, branch, worth_it), catalog)
