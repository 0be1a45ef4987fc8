"""The estimates of a plan equal the rows, bytes and chains of its rooms."""

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.plan_room import RoomPlan, estimate_room
from synapse_lakehouse.compressor.settings import CompressorSettings
from tests.support.state_rooms import KINDS, World, begin_rooms, grow_rooms

Tables = tuple[pa.Table, pa.Table, pa.Table]


def plan_rooms(tables: Tables, strategy: Strategy = Strategy.BEST) -> list[RoomPlan]:
    rooms = sorted(set(tables[0]["room_id"].to_pylist()))
    return [estimate_room(tables, room, CompressorSettings(strategy=strategy).layout, None)[1] for room in rooms]


@given(st.integers(0, 2**32), st.sampled_from(Strategy))
def test_a_plan_counts_every_row_of_each_room(seed: int, strategy: Strategy) -> None:
    world = World(random.Random(seed))
    grow_rooms(world, begin_rooms(world, KINDS, 60), 300)
    plans = plan_rooms(world.tables(), strategy)
    assert [plan.room_id for plan in plans] == sorted(set(world.groups.values()))
    for plan in plans:
        groups = [group for group, room in world.groups.items() if room == plan.room_id]
        assert (plan.groups, plan.rows_before) == (len(groups), sum(len(world.rows[group]) for group in groups))
        assert plan.rows_after - plan.rows_before == plan.rows_to_insert - plan.rows_to_delete
        assert plan.bytes_needed <= plan.bytes_after
        assert plan.groups_to_rewrite or (plan.rows_after, plan.bytes_after) == (plan.rows_before, plan.bytes_before)
        assert plan.longest_chain_before == max(chain_length(world, group) for group in groups)
    if strategy is Strategy.BEST:
        assert all(plan.rows_after <= plan.rows_before and plan.longest_chain_after <= 100 for plan in plans)


def test_a_plan_does_not_depend_on_the_order_of_the_tables() -> None:
    world = World(random.Random(1))
    grow_rooms(world, begin_rooms(world, KINDS, 200), 900)
    tables = world.tables()
    reversed_tables = tuple(table.take(pa.array(range(len(table) - 1, -1, -1))) for table in tables)
    for strategy in Strategy:
        assert plan_rooms(tables, strategy) == plan_rooms(
            (reversed_tables[0], reversed_tables[1], reversed_tables[2]), strategy
        )


def test_bytes_depend_on_the_length_of_texts() -> None:
    world = World(random.Random(1))
    world.add("!r", {("t", "k"): "$e"})
    (short,) = plan_rooms(world.tables())
    world.rows[1] = {("t", "k"): "$e" + 10 * "x"}
    (longer,) = plan_rooms(world.tables())
    assert longer.bytes_before - short.bytes_before == 10


def chain_length(world: World, group: int) -> int:
    """Return the number of groups in the chain of ``group``."""
    return 1 + (chain_length(world, world.edges[group]) if group in world.edges else 0)
