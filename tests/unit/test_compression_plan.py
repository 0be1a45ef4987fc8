"""A plan estimates exactly what the compression does."""

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.plan_room import RoomPlan, estimate_room
from synapse_lakehouse.compressor.settings import CompressorSettings
from tests.support.state_rooms import KINDS, World, begin, grow

Tables = tuple[pa.Table, pa.Table, pa.Table]


def plan_rooms(tables: Tables, strategy: Strategy = Strategy.BEST) -> list[RoomPlan]:
    rooms = sorted(set(tables[0]["room_id"].to_pylist()))
    return [estimate_room(tables, room, CompressorSettings(strategy=strategy).layout, None)[1] for room in rooms]


@given(st.integers(0, 2**32), st.sampled_from(Strategy))
def test_a_plan_counts_every_row_of_each_room(seed: int, strategy: Strategy) -> None:
    world = World(random.Random(seed))
    grow(world, begin(world, KINDS, 60), 300)
    rooms = plan_rooms(world.tables(), strategy)
    assert [item.room_id for item in rooms] == sorted(set(world.groups.values()))
    for item in rooms:
        groups = [group for group, room in world.groups.items() if room == item.room_id]
        assert (item.groups, item.rows_before) == (len(groups), sum(len(world.rows[group]) for group in groups))
        assert item.rows_after - item.rows_before == item.rows_to_insert - item.rows_to_delete
        assert item.bytes_needed <= item.bytes_after
        assert item.groups_to_rewrite or (item.rows_after, item.bytes_after) == (item.rows_before, item.bytes_before)
        assert item.longest_chain_before == max(nodes(world, group) for group in groups)
    if strategy is Strategy.BEST:
        assert all(item.rows_after <= item.rows_before and item.longest_chain_after <= 100 for item in rooms)


def test_a_plan_does_not_depend_on_the_order_of_the_tables() -> None:
    world = World(random.Random(1))
    grow(world, begin(world, KINDS, 200), 900)
    tables = world.tables()
    turned = tuple(table.take(pa.array(range(len(table) - 1, -1, -1))) for table in tables)
    for strategy in Strategy:
        assert plan_rooms(tables, strategy) == plan_rooms((turned[0], turned[1], turned[2]), strategy)


def test_bytes_follow_the_texts() -> None:
    world = World(random.Random(1))
    world.add("!r", {("t", "k"): "$e"})
    (short,) = plan_rooms(world.tables())
    world.rows[1] = {("t", "k"): "$e" + 10 * "x"}
    (longer,) = plan_rooms(world.tables())
    assert longer.bytes_before - short.bytes_before == 10


def nodes(world: World, group: int) -> int:
    """Groups in the chain of one."""
    return 1 + (nodes(world, world.edges[group]) if group in world.edges else 0)
