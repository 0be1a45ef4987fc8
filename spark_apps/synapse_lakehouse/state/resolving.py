"""Resolve the state of all rooms with Spark: ``silver.state_positions``, ``state_intervals`` and ``state_faults``."""

import hashlib
from pathlib import Path
from typing import Final

import pyarrow as pa
from duckdb import DuckDBPyConnection
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col, greatest, least

from synapse_lakehouse.lake import changes, duck, remaking
from synapse_lakehouse.lake.tables import load_or_none
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.state import carrying, forest, intervals
from synapse_lakehouse.state.carrying import Carried

SOURCES: Final = ["bronze.state_groups", "bronze.state_group_edges", "bronze.state_groups_state"]
WORTH_CARRYING: Final = 1_000_000
"""With fewer rows of ``state_groups_state`` all is resolved sooner than what changed is told apart."""

_MOST_FOUND: Final = 2_000_000
"""More rows of groups than these are looked for by Spark, which needs no memory for all of them."""

_ROWS, _ROWS_READ, _RULES_READ = SOURCES[2], "state-rows", "state-rules"
_POSITIONS: Final = "silver.state_positions"
_STORED: Final = f"""
    select nodes.room_id, type, state_key, position as first_position, last_position, event_id
    from bronze.state_groups_state as stored join nodes on stored.state_group = nodes.state_group
    limit {_MOST_FOUND + 1}
"""  # noqa: S608
_RULES: Final = hashlib.sha256(
    b"".join(
        Path(str(source)).read_bytes() for source in (forest.__file__, intervals.__file__, carrying.__file__, __file__)
    )
).hexdigest()


def is_resolved(catalog: Catalog, branch: str) -> bool:
    """Whether the three tables are up to bronze on ``branch``."""
    # Written last, so that a run that died in between makes all of them again.
    return remaking.made_of(catalog, "silver.state_intervals", branch) == _made_now(catalog, branch)


def resolve(
    spark: SparkSession, catalog: Catalog, settings: Settings, branch: str, worth_carrying: int = WORTH_CARRYING
) -> forest.Forest:
    """Bring the three tables up to bronze on ``branch``, the session's.

    What is known of trees that did not change is carried over, if the rows of state groups are ``worth_carrying``.

    :raises LakeError: when the lake cannot be read.
    """
    made_now = _made_now(catalog, branch)
    rows = remaking.snapshot_of(load_or_none(catalog, _ROWS), branch)
    with duck.on_branch(settings, branch, [*SOURCES, _POSITIONS]) as lake:
        found = forest.number(
            _arrow(lake, "select id, room_id from bronze.state_groups"),
            _arrow(lake, "select state_group, prev_state_group from bronze.state_group_edges"),
        )
        nodes, now = spark.createDataFrame(found.nodes), None
        if int(remaking.said(rows, "total-records") or 0) >= worth_carrying:
            same = _carried(lake, catalog, branch, found)
            now = _amended(spark, same, _stored(spark, lake, same.fresh)) if same else None
    if now is None:
        now = _flattened(_ranged(spark, nodes))
    read = {_ROWS_READ: str(rows.snapshot_id) if rows else "", _RULES_READ: _RULES}
    remaking.replace(spark, "silver.state_faults", spark.createDataFrame(found.faults), made_now)
    remaking.replace(spark, "silver.state_positions", nodes.where("is_group"), made_now)
    remaking.replace(spark, "silver.state_intervals", now, made_now, read)
    return found


def _made_now(catalog: Catalog, branch: str) -> str:
    return remaking.ingredients(catalog, branch, SOURCES, _RULES)


def _stored(spark: SparkSession, lake: DuckDBPyConnection, nodes: pa.Table) -> DataFrame:
    """What few groups are stored with, as intervals that overlap; DuckDB passes over the text of all others."""
    lake.register("nodes", nodes)
    rows = _arrow(lake, _STORED)
    if rows.num_rows > _MOST_FOUND:
        return _ranged(spark, broadcast(spark.createDataFrame(nodes)))
    return spark.createDataFrame(rows)


def _ranged(spark: SparkSession, nodes: DataFrame) -> DataFrame:
    """What groups are stored with, as intervals that overlap."""
    rows = spark.table(_ROWS).select("state_group", "type", "state_key", "event_id")
    return rows.join(nodes.select("state_group", "room_id", "position", "last_position"), "state_group").select(
        *intervals.KEY, col("position").alias("first_position"), "last_position", "event_id"
    )


def _flattened(ranged: DataFrame) -> DataFrame:
    ordered = ranged.repartition(*intervals.KEY).sortWithinPartitions(*intervals.KEY, "first_position", "event_id")
    return ordered.mapInArrow(intervals.flattened, ordered.schema)


def _carried(lake: DuckDBPyConnection, catalog: Catalog, branch: str, found: forest.Forest) -> Carried | None:
    """What stays of the intervals before; None where that cannot be known, or nothing stays."""
    table = load_or_none(catalog, "silver.state_intervals")
    before, rows = remaking.snapshot_of(table, branch), load_or_none(catalog, _ROWS)
    read, now = remaking.said(before, _ROWS_READ), remaking.snapshot_of(rows, branch)
    positions = remaking.made_of(catalog, _POSITIONS, branch)
    consistent = positions == remaking.made_of(catalog, "silver.state_intervals", branch)
    if not read or not rows or not now or not consistent or remaking.said(before, _RULES_READ) != _RULES:
        return None
    changed = changes.changed_keys(rows, int(read), now.snapshot_id, ["state_group"])
    if changed is None:
        return None
    known = _arrow(lake, "select room_id, state_group, root, position, last_position from silver.state_positions")
    return carrying.carried(known, found.nodes, changed["state_group"].unique())


def _amended(spark: SparkSession, same: Carried, fresh: DataFrame) -> DataFrame:
    """The intervals before where nothing changed; elsewhere what stays of them, with what ``fresh`` groups are stored
    with."""
    before = spark.table("silver.state_intervals")
    untouched = broadcast(spark.createDataFrame(pa.table({"room_id": same.untouched})))
    runs = broadcast(spark.createDataFrame(same.runs.rename_columns(["room_id", "run_first", "run_last", "shift"])))
    stays = (
        before.join(untouched, "room_id", "left_anti")
        .join(runs, "room_id")
        .where("first_position <= run_last and last_position >= run_first")
        .select(
            *intervals.KEY,
            (greatest("first_position", "run_first") + col("shift")).alias("first_position"),
            (least("last_position", "run_last") + col("shift")).alias("last_position"),
            "event_id",
        )
    )
    columns = [*intervals.KEY, "first_position", "last_position", "event_id"]
    return before.join(untouched, "room_id", "left_semi").select(columns).union(_flattened(stays.union(fresh)))


def _arrow(lake: DuckDBPyConnection, sql: str) -> pa.Table:
    table: pa.Table = lake.execute(sql).to_arrow_table()
    return table
