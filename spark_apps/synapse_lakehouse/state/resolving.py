"""Resolve the state of all rooms with Spark: ``silver.state_positions``, ``state_intervals`` and ``state_faults``."""

import hashlib
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from synapse_lakehouse.lake import remaking
from synapse_lakehouse.state import forest, intervals

SOURCES: Final = ["bronze.state_groups", "bronze.state_group_edges", "bronze.state_groups_state"]
_RULES: Final = hashlib.sha256(
    b"".join(Path(str(source)).read_bytes() for source in (forest.__file__, intervals.__file__, __file__))
).hexdigest()


def resolve(spark: SparkSession, catalog: Catalog, branch: str) -> forest.Forest | None:
    """Bring the three tables up to bronze on ``branch``, the session's; None where they are so already."""
    made_now = remaking.ingredients(catalog, branch, SOURCES, _RULES)
    # Written last, so that a run that died in between makes all of them again.
    if remaking.made_of(catalog, "silver.state_intervals", branch) == made_now:
        return None
    found = forest.number(
        _arrow(spark, "select id, room_id from bronze.state_groups"),
        _arrow(spark, "select state_group, prev_state_group from bronze.state_group_edges"),
    )
    nodes = spark.createDataFrame(found.nodes)
    remaking.replace(spark, "silver.state_faults", spark.createDataFrame(found.faults), made_now)
    remaking.replace(spark, "silver.state_positions", nodes.where("is_group"), made_now)
    remaking.replace(spark, "silver.state_intervals", state_intervals(spark, nodes), made_now)
    return found


def state_intervals(spark: SparkSession, nodes: DataFrame) -> DataFrame:
    """The rows of ``silver.state_intervals``.

    :param nodes: as :class:`forest.Forest` has them.
    """
    rows = spark.table("bronze.state_groups_state").select("state_group", "type", "state_key", "event_id")
    ranged = rows.join(nodes.select("state_group", "room_id", "position", "last_position"), "state_group").select(
        *intervals.KEY, col("position").alias("first_position"), "last_position", "event_id"
    )
    ordered = ranged.repartition(*intervals.KEY).sortWithinPartitions(*intervals.KEY, "first_position", "event_id")
    return ordered.mapInArrow(intervals.flattened, ordered.schema)


def _arrow(spark: SparkSession, sql: str) -> pa.Table:
    table: pa.Table = spark.sql(sql).toArrow()
    return table
