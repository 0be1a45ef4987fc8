"""The state of every group and event in the published lake equals the state from its chain."""

from collections import defaultdict
from collections.abc import Iterator

import pytest
from duckdb import DuckDBPyConnection

from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.conftest import PublishedLake
from tests.support.state_rooms import State, resolve_state

STATE = ["bronze.state_groups", "bronze.state_group_edges", "bronze.state_groups_state", "bronze.event_to_state_groups"]
DERIVED = [
    "silver.state_positions",
    "silver.state_intervals",
    "gold.state_at_event",
    "gold.events",
    "gold.state_group_sizes",
]


@pytest.fixture(scope="module")
def lake(published: PublishedLake) -> Iterator[DuckDBPyConnection]:
    with duckdb_reader.open_duckdb(published.settings) as connection:
        release = duckdb_reader.get_release(connection, published.settings)
        duckdb_reader.create_views(connection, published.settings, release, STATE + DERIVED)
        yield connection


@pytest.fixture(scope="module")
def chain_states(lake: DuckDBPyConnection) -> dict[int, State]:
    """Return the state of every group, resolved from its chain."""
    rows: dict[int, State] = defaultdict(dict)
    for group, kind, key, event in lake.sql(
        "select state_group, type, state_key, event_id from bronze.state_groups_state"
    ).fetchall():
        rows[group][kind, key] = event
    edges = dict(lake.sql("select state_group, prev_state_group from bronze.state_group_edges").fetchall())
    groups = [group for (group,) in lake.sql("select id from bronze.state_groups").fetchall()]
    return {group: resolve_state(edges, rows, group) for group in groups}


def test_every_group_has_its_state_in_few_rows(lake: DuckDBPyConnection, chain_states: dict[int, State]) -> None:
    actual: dict[int, State] = {group: {} for group in chain_states}
    for group, kind, key, event in lake.sql("""
        select state_group, type, state_key, event_id
        from silver.state_positions join silver.state_intervals as state using (room_id)
        where position between first_position and state.last_position
    """).fetchall():
        assert (kind, key) not in actual[group]
        actual[group][kind, key] = event
    assert actual == chain_states
    is_small = lake.sql(
        "select (select count(*) from silver.state_intervals) <= 2 * (select count(*) from bronze.state_groups_state)"
    )
    assert is_small.fetchone() == (True,)


def test_every_event_has_the_state_after_and_before_it(
    lake: DuckDBPyConnection, chain_states: dict[int, State]
) -> None:
    after: dict[str, State] = defaultdict(dict)
    before: dict[str, State] = defaultdict(dict)
    for event, kind, key, new, old in lake.sql(
        "select event_id, type, state_key, after_event_id, before_event_id from gold.state_at_event"
    ).fetchall():
        if new:
            after[event][kind, key] = new
        if old:
            before[event][kind, key] = old
    events = lake.sql(
        "select event_id, state_group, type, state_key, replaces_state from gold.events where state_group is not null"
    ).fetchall()
    assert len(events) > 4000
    for event, group, kind, key, replaced in events:
        assert after[event] == chain_states[group]
        if key is not None:
            own = {(kind, key): replaced} if replaced else {}
            assert (
                before[event]
                == {piece: item for piece, item in chain_states[group].items() if piece != (kind, key)} | own
            )
        else:
            assert before[event] == chain_states[group]
    assert after.keys() | before.keys() == {event for event, *_ in events}


def test_equal_states_have_equal_digests(lake: DuckDBPyConnection, chain_states: dict[int, State]) -> None:
    digests = dict(lake.sql("select state_group, digest from silver.state_positions").fetchall())
    pairs = {(frozenset(state.items()), digests[group]) for group, state in chain_states.items()}
    assert len(pairs) == len({state for state, _ in pairs}) == len({digest for _, digest in pairs})


def test_group_sizes_equal_those_of_their_chains(lake: DuckDBPyConnection, chain_states: dict[int, State]) -> None:
    edges = dict(lake.sql("select state_group, prev_state_group from bronze.state_group_edges").fetchall())

    def length(group: int | None) -> int:
        return 0 if group is None else 1 + length(edges.get(group))

    sizes = lake.sql("select state_group, state_rows, chain_length from gold.state_group_sizes").fetchall()
    assert {group: (rows, chain) for group, rows, chain in sizes} == {
        group: (len(state), length(group)) for group, state in chain_states.items()
    }
