"""Resolve the state of all rooms: ``silver.state_positions``, ``state_intervals`` and ``state_faults``.

If most intervals can be reused, DuckDB and this process resolve the rest. Otherwise Spark resolves all intervals.
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
from synapse_lakehouse.room_state import group_tree, reuse_resolved, state_intervals
from synapse_lakehouse.room_state.reuse_resolved import ReusableState

SOURCE_TABLES: Final = ["bronze.state_groups", "bronze.state_group_edges", "bronze.state_groups_state"]
MINIMUM_ROWS_FOR_REUSE: Final = 1_000_000
"""Minimum number of rows of ``state_groups_state`` for a reuse. With fewer rows, resolving everything is faster."""

_BATCH_ROWS: Final = 65_536

_STATE_ROWS, _STATE_ROWS_PROPERTY, _RULES_PROPERTY = SOURCE_TABLES[2], "state-rows", "state-rules"
_POSITIONS: Final = "silver.state_positions"
_INTERVALS: Final = "silver.state_intervals"
_REUSED_ROOMS_SQL: Final = """
    select room_id, type, state_key, first_position, last_position, event_id
    from silver.state_intervals semi join unchanged_rooms using (room_id)
    order by room_id
"""
_CHANGED_ROOMS_SQL: Final = """
    select
        room_id, type, state_key,
        greatest(before.first_position, runs.first_position) + shift as first_position,
        least(before.last_position, runs.last_position) + shift as last_position,
        event_id
    from (from silver.state_intervals anti join unchanged_rooms using (room_id)) as before
    join runs using (room_id)
    where before.first_position <= runs.last_position and before.last_position >= runs.first_position
    union all
    select new_nodes.room_id, type, state_key, position, last_position, event_id
    from bronze.state_groups_state join new_nodes using (state_group)
    order by room_id, type, state_key, first_position, event_id
"""
_CODE_HASH: Final = hashlib.sha256(
    b"".join(
        Path(str(source)).read_bytes()
        for source in (group_tree.__file__, state_intervals.__file__, reuse_resolved.__file__, __file__)
    )
).hexdigest()


def is_up_to_date(catalog: Catalog, branch: str) -> bool:
    """Return whether the three tables were built from the present bronze tables of ``branch``."""
    # The intervals are written last, so a run that failed in between rebuilds all three tables.
    return input_fingerprint.read_fingerprint(catalog, _INTERVALS, branch) == _fingerprint(catalog, branch)


def resolve_rooms(
    spark: SparkSession,
    catalog: Catalog,
    settings: Settings,
    branch: str,
    minimum_rows_for_reuse: int = MINIMUM_ROWS_FOR_REUSE,
) -> group_tree.NumberedGroups:
    """Rebuild the three tables from bronze on ``branch`` (the session's branch), and return the numbered groups.

    Intervals of unchanged trees are reused if ``state_groups_state`` has at least ``minimum_rows_for_reuse`` rows.

    :raises LakeReadError: if the lake cannot be read.
    """
    fingerprint = _fingerprint(catalog, branch)
    positions, intervals, faults = (
        catalog.load_table(name) for name in (_POSITIONS, _INTERVALS, "silver.state_faults")
    )
    rows = input_fingerprint.find_snapshot(load_table_or_none(catalog, _STATE_ROWS), branch)
    snapshot_properties = {_STATE_ROWS_PROPERTY: str(rows.snapshot_id) if rows else "", _RULES_PROPERTY: _CODE_HASH}
    with duckdb_reader.open_branch(settings, branch, [*SOURCE_TABLES, _POSITIONS, _INTERVALS]) as lake:
        groups = group_tree.number_groups(
            _arrow(lake, "select id, room_id from bronze.state_groups"),
            _arrow(lake, "select state_group, prev_state_group from bronze.state_group_edges"),
        )
        has_enough_rows = (
            int(input_fingerprint.get_snapshot_property(rows, "total-records") or 0) >= minimum_rows_for_reuse
        )
        reusable = _find_reusable_state(lake, catalog, branch, groups) if has_enough_rows else None
        input_fingerprint.replace_table_from_arrow(
            spark, faults, branch, groups.faults.to_batches(_BATCH_ROWS), fingerprint
        )
        numbered = groups.nodes.filter(pc.field("is_group"))
        input_fingerprint.replace_table_from_arrow(
            spark, positions, branch, numbered.to_batches(_BATCH_ROWS), fingerprint
        )
        if reusable:
            input_fingerprint.replace_table_from_arrow(
                spark, intervals, branch, _merge_intervals(lake, reusable), fingerprint, snapshot_properties
            )
    if not reusable:
        input_fingerprint.replace_table(
            spark, _INTERVALS, branch, _resolve_intervals(spark, groups.nodes), fingerprint, snapshot_properties
        )
    return groups


def _fingerprint(catalog: Catalog, branch: str) -> str:
    return input_fingerprint.compute_fingerprint(catalog, branch, SOURCE_TABLES, _CODE_HASH)


def _resolve_intervals(spark: SparkSession, nodes: pa.Table) -> DataFrame:
    """Intervals of all groups, computed from their rows in ``state_groups_state``."""
    rows = spark.table(_STATE_ROWS).select("state_group", "type", "state_key", "event_id")
    ranges = spark.createDataFrame(nodes).select("state_group", "room_id", "position", "last_position")
    ranged = rows.join(ranges, "state_group").select(
        *state_intervals.INTERVAL_KEY, col("position").alias("first_position"), "last_position", "event_id"
    )
    ordered = ranged.repartition(*state_intervals.INTERVAL_KEY).sortWithinPartitions(
        *state_intervals.INTERVAL_KEY, "first_position", "event_id"
    )
    return ordered.mapInArrow(state_intervals.flatten_intervals, ordered.schema)


def _find_reusable_state(
    lake: DuckDBPyConnection, catalog: Catalog, branch: str, groups: group_tree.NumberedGroups
) -> ReusableState | None:
    """The reusable part of the previous intervals; None if it is unknown or empty."""
    table = load_table_or_none(catalog, _INTERVALS)
    before, rows = input_fingerprint.find_snapshot(table, branch), load_table_or_none(catalog, _STATE_ROWS)
    state_rows_id, now = (
        input_fingerprint.get_snapshot_property(before, _STATE_ROWS_PROPERTY),
        input_fingerprint.find_snapshot(rows, branch),
    )
    positions = input_fingerprint.read_fingerprint(catalog, _POSITIONS, branch)
    consistent = positions == input_fingerprint.read_fingerprint(catalog, _INTERVALS, branch)
    if (
        not state_rows_id
        or not rows
        or not now
        or not consistent
        or input_fingerprint.get_snapshot_property(before, _RULES_PROPERTY) != _CODE_HASH
    ):
        return None
    changed = snapshot_diff.find_changed_keys(rows, int(state_rows_id), now.snapshot_id, ["state_group"])
    if changed is None:
        return None
    previous = _arrow(lake, "select room_id, state_group, root, position, last_position from silver.state_positions")
    return reuse_resolved.find_reusable_state(previous, groups.nodes, changed["state_group"].unique())


def _merge_intervals(lake: DuckDBPyConnection, reusable: ReusableState) -> Iterator[pa.RecordBatch]:
    """The previous intervals of unchanged rooms. In other rooms, they are merged with intervals of new groups.

    DuckDB does not read the text columns of other groups.
    """
    lake.register("new_nodes", reusable.new_nodes)
    lake.register("runs", reusable.runs)
    lake.register("unchanged_rooms", pa.table({"room_id": reusable.unchanged_rooms}))
    yield from lake.execute(_REUSED_ROOMS_SQL).to_arrow_reader(_BATCH_ROWS)
    yield from state_intervals.flatten_intervals(lake.execute(_CHANGED_ROOMS_SQL).to_arrow_reader(_BATCH_ROWS))


def _arrow(lake: DuckDBPyConnection, sql: str) -> pa.Table:
    table: pa.Table = lake.execute(sql).to_arrow_table()
    return table
