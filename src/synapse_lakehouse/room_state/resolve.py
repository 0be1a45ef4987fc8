"""Resolve the state of all rooms: ``silver.state_positions``, ``state_intervals`` and ``state_faults``.

Spark does so where all intervals are made; where most can be carried over, DuckDB and this process do.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader, snapshot_diff
from synapse_lakehouse.iceberg.write import input_fingerprint
from synapse_lakehouse.iceberg.write.tables import load_table_or_none
from synapse_lakehouse.room_state import group_tree, reuse, state_intervals
from synapse_lakehouse.room_state.reuse import ReusableState

SOURCE_TABLES: Final = ["bronze.state_groups", "bronze.state_group_edges", "bronze.state_groups_state"]
MINIMUM_ROWS_FOR_REUSE: Final = 1_000_000
"""With fewer rows of ``state_groups_state`` all is resolved sooner than what changed is told apart."""

_AT_ONCE: Final = 65_536
"""Rows that are handed on together."""

_ROWS, _ROWS_READ, _RULES_READ = SOURCE_TABLES[2], "state-rows", "state-rules"
_POSITIONS: Final = "silver.state_positions"
_INTERVALS: Final = "silver.state_intervals"
_UNTOUCHED: Final = """
    select room_id, type, state_key, first_position, last_position, event_id
    from silver.state_intervals semi join untouched using (room_id)
    order by room_id
"""
_TOUCHED: Final = """
    select
        room_id, type, state_key,
        greatest(before.first_position, runs.first_position) + shift as first_position,
        least(before.last_position, runs.last_position) + shift as last_position,
        event_id
    from (from silver.state_intervals anti join untouched using (room_id)) as before
    join runs using (room_id)
    where before.first_position <= runs.last_position and before.last_position >= runs.first_position
    union all
    select fresh.room_id, type, state_key, position, last_position, event_id
    from bronze.state_groups_state join fresh using (state_group)
    order by room_id, type, state_key, first_position, event_id
"""
_RULES: Final = hashlib.sha256(
    b"".join(
        Path(str(source)).read_bytes()
        for source in (group_tree.__file__, state_intervals.__file__, reuse.__file__, __file__)
    )
).hexdigest()


def is_up_to_date(catalog: Catalog, branch: str) -> bool:
    """Whether the three tables are up to bronze on ``branch``."""
    # Written last, so that a run that died in between makes all of them again.
    return input_fingerprint.read_fingerprint(catalog, _INTERVALS, branch) == _made_now(catalog, branch)


def resolve_rooms(
    spark: SparkSession, catalog: Catalog, settings: Settings, branch: str, worth_carrying: int = MINIMUM_ROWS_FOR_REUSE
) -> group_tree.NumberedGroups:
    """Bring the three tables up to bronze on ``branch``, the session's.

    What is known of trees that did not change is carried over, if the rows of state groups are ``worth_carrying``.

    :raises LakeReadError: when the lake cannot be read.
    """
    made_now = _made_now(catalog, branch)
    positions, holding, faults = (catalog.load_table(name) for name in (_POSITIONS, _INTERVALS, "silver.state_faults"))
    rows = input_fingerprint.find_snapshot(load_table_or_none(catalog, _ROWS), branch)
    read = {_ROWS_READ: str(rows.snapshot_id) if rows else "", _RULES_READ: _RULES}
    with duckdb_reader.open_branch(settings, branch, [*SOURCE_TABLES, _POSITIONS, _INTERVALS]) as lake:
        found = group_tree.number_groups(
            _arrow(lake, "select id, room_id from bronze.state_groups"),
            _arrow(lake, "select state_group, prev_state_group from bronze.state_group_edges"),
        )
        is_worth_it = int(input_fingerprint.get_snapshot_property(rows, "total-records") or 0) >= worth_carrying
        same = _carried(lake, catalog, branch, found) if is_worth_it else None
        input_fingerprint.replace_table_from_arrow(spark, faults, branch, found.faults.to_batches(_AT_ONCE), made_now)
        numbered = found.nodes.filter(pc.field("is_group"))
        input_fingerprint.replace_table_from_arrow(spark, positions, branch, numbered.to_batches(_AT_ONCE), made_now)
        if same:
            input_fingerprint.replace_table_from_arrow(spark, holding, branch, _amended(lake, same), made_now, read)
    if not same:
        input_fingerprint.replace_table(spark, _INTERVALS, branch, _resolved(spark, found.nodes), made_now, read)
    return found


def _made_now(catalog: Catalog, branch: str) -> str:
    return input_fingerprint.compute_fingerprint(catalog, branch, SOURCE_TABLES, _RULES)


def _resolved(spark: SparkSession, nodes: pa.Table) -> DataFrame:
    """The intervals of all groups, from what they are stored with."""
    rows = spark.table(_ROWS).select("state_group", "type", "state_key", "event_id")
    ranges = spark.createDataFrame(nodes).select("state_group", "room_id", "position", "last_position")
    ranged = rows.join(ranges, "state_group").select(
        *state_intervals.INTERVAL_KEY, col("position").alias("first_position"), "last_position", "event_id"
    )
    ordered = ranged.repartition(*state_intervals.INTERVAL_KEY).sortWithinPartitions(
        *state_intervals.INTERVAL_KEY, "first_position", "event_id"
    )
    return ordered.mapInArrow(state_intervals.flatten_intervals, ordered.schema)


def _carried(
    lake: DuckDBPyConnection, catalog: Catalog, branch: str, found: group_tree.NumberedGroups
) -> ReusableState | None:
    """What stays of the intervals before; None where that cannot be known, or nothing stays."""
    table = load_table_or_none(catalog, _INTERVALS)
    before, rows = input_fingerprint.find_snapshot(table, branch), load_table_or_none(catalog, _ROWS)
    read, now = (
        input_fingerprint.get_snapshot_property(before, _ROWS_READ),
        input_fingerprint.find_snapshot(rows, branch),
    )
    positions = input_fingerprint.read_fingerprint(catalog, _POSITIONS, branch)
    consistent = positions == input_fingerprint.read_fingerprint(catalog, _INTERVALS, branch)
    if (
        not read
        or not rows
        or not now
        or not consistent
        or input_fingerprint.get_snapshot_property(before, _RULES_READ) != _RULES
    ):
        return None
    changed = snapshot_diff.find_changed_keys(rows, int(read), now.snapshot_id, ["state_group"])
    if changed is None:
        return None
    known = _arrow(lake, "select room_id, state_group, root, position, last_position from silver.state_positions")
    return reuse.find_reusable_state(known, found.nodes, changed["state_group"].unique())


def _amended(lake: DuckDBPyConnection, same: ReusableState) -> Iterator[pa.RecordBatch]:
    """The intervals before where nothing changed; elsewhere what stays of them, with what fresh groups are stored with.

    DuckDB passes over the text of all other groups.
    """
    lake.register("fresh", same.fresh)
    lake.register("runs", same.runs)
    lake.register("untouched", pa.table({"room_id": same.untouched}))
    yield from lake.execute(_UNTOUCHED).to_arrow_reader(_AT_ONCE)
    yield from state_intervals.flatten_intervals(lake.execute(_TOUCHED).to_arrow_reader(_AT_ONCE))


def _arrow(lake: DuckDBPyConnection, sql: str) -> pa.Table:
    table: pa.Table = lake.execute(sql).to_arrow_table()
    return table
