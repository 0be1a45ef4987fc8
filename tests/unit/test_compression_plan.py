"""A plan estimates exactly what the compression does."""

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.plan_room import estimate_rooms
from synapse_lakehouse.compressor.settings import CompressorSettings
from tests.support.state_rooms import KINDS, World, begin, grow


@given(st.integers(0, 2**32), st.sampled_from(Strategy))
def test_a_plan_counts_every_row_of_each_room(seed: int, strategy: Strategy) -> None:
    world = World(random.Random(seed))
    grow(world, begin(world, KINDS, 60), 300)
    rooms = estimate_rooms(world.tables(), CompressorSettings(strategy=strategy), {})
    assert [one.room_id for one in rooms] == sorted(set(world.groups.values()))
    for one in rooms:
        groups = [group for group, room in world.groups.items() if room == one.room_id]
        assert (one.groups, one.rows_before) == (len(groups), sum(len(world.rows[group]) for group in groups))
        assert one.rows_after - one.rows_before == one.rows_to_insert - one.rows_to_delete
        assert one.bytes_needed <= one.bytes_after
        assert one.groups_to_rewrite or (one.rows_after, one.bytes_after) == (one.rows_before, one.bytes_before)
        assert one.longest_chain_before == max(nodes(world, group) for group in groups)
    if strategy is Strategy.BEST:
        assert all(one.rows_after <= one.rows_before and one.longest_chain_after <= 100 for one in rooms)


def test_a_plan_does_not_depend_on_the_order_of_the_tables() -> None:
    world = World(random.Random(1))
    grow(world, begin(world, KINDS, 200), 900)
    tables = world.tables()
    turned = tuple(table.take(pa.array(range(len(table) - 1, -1, -1))) for table in tables)
    for strategy in Strategy:
        settings = CompressorSettings(strategy=strategy)
        assert estimate_rooms(tables, settings, {}) == estimate_rooms((turned[0], turned[1], turned[2]), settings, {})


def test_bytes_follow_the_texts() -> None:
    world = World(random.Random(1))
    world.add("!r", {("t", "k"): "$e"})
    (short,) = estimate_rooms(world.tables(), CompressorSettings(), {})
    world.rows[1] = {("t", "k"): "$e" + 10 * "x"}
    (longer,) = estimate_rooms(world.tables(), CompressorSettings(), {})
    assert longer.bytes_before - short.bytes_before == 10


def nodes(world: World, group: int) -> int:
    """Groups in the chain of one."""
    return 1 + (nodes(world, world.edges[group]) if group in world.edges else 0)
