"""The range of a lost event's stream ID contains the ID and is as narrow as the graph allows."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.streams.gaps.lost_event_ranges import LocalEdge, compute_id_ranges


def test_consecutive_lost_events_lie_between_neighbours() -> None:
    edges = [LocalEdge("a", "before", None, 10), LocalEdge("b", "a", None, None), LocalEdge("after", "b", 20, None)]
    assert compute_id_ranges(["a", "b", "alone"], edges, {}) == {"a": (11, 18), "b": (12, 19), "alone": (None, None)}


def test_an_id_of_another_table_bounds_the_others() -> None:
    edges = [LocalEdge("b", "a", None, None), LocalEdge("c", "b", None, None)]
    assert compute_id_ranges("abc", edges, {"b": -7}) == {"a": (None, -8), "b": (-7, -7), "c": (-6, None)}


def test_contradictory_neighbours_give_no_bound() -> None:
    edges = [
        LocalEdge("a", "x", None, 9),
        LocalEdge("x", "a", 9, None),
        LocalEdge("b", "c", None, None),
        LocalEdge("c", "b", None, None),
    ]
    assert compute_id_ranges("abc", edges, {"c": 5}) == {"a": (None, None), "b": (None, None), "c": (5, 5)}


def test_long_chains_of_lost_events_take_linear_time() -> None:
    names = [str(number) for number in range(50_000)]
    edges = [LocalEdge(child, parent, None, None) for parent, child in pairwise(names)]
    actual = compute_id_ranges(names, [*edges, LocalEdge("0", "x", None, 0)], {})
    assert actual["49999"] == (50_000, None)


@st.composite
def rooms(draw: st.DrawFn) -> tuple[dict[str, int], list[LocalEdge], set[str], dict[str, int]]:
    """Draw stream IDs of events, edges of local events, the lost events, and known IDs of some lost events."""
    ids = {
        str(number): id_
        for number, id_ in enumerate(sorted(draw(st.sets(st.integers(-50, 50), min_size=2, max_size=20))))
    }
    pairs = draw(st.sets(st.tuples(*[st.integers(0, len(ids) - 1)] * 2).filter(lambda pair: pair[0] < pair[1])))
    lost = draw(st.sets(st.sampled_from(sorted(ids))))
    edges = [
        LocalEdge(
            str(child), str(parent), *(None if event in lost else ids[event] for event in (str(child), str(parent)))
        )
        for parent, child in pairs
    ]
    known_events = draw(st.sets(st.sampled_from(sorted(lost)))) if lost else set()
    return ids, edges, lost, {event: ids[event] for event in known_events}


@given(rooms())
def test_the_range_always_contains_the_id(
    room: tuple[dict[str, int], list[LocalEdge], set[str], dict[str, int]],
) -> None:
    ids, edges, lost, known_ids = room
    actual = compute_id_ranges(lost, edges, known_ids)
    assert actual.keys() == lost
    for event, (low, high) in actual.items():
        assert low is None or low <= ids[event]
        assert high is None or ids[event] <= high
        assert event not in known_ids or (low, high) == (ids[event], ids[event])
