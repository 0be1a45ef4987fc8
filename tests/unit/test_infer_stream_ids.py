"""Stream IDs of events with only their JSON, inferred from neighbours in the room's graph."""

from collections.abc import Iterator
from itertools import permutations
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.streams.gaps.infer_stream_ids import (
    AttestedId,
    EventEdge,
    IdRange,
    IdSpan,
    compute_id_spans,
    find_assigned_ranges,
)

UNBOUNDED = (-inf, inf)


def test_an_id_lies_between_those_of_the_neighbours() -> None:
    edges = [
        EventEdge("$a", "$before", None, 4),
        EventEdge("$a", "$earlier", None, 2),
        EventEdge("$after", "$a", 9, None),
    ]
    assert compute_id_spans({"$a", "$alone"}, edges) == {"$a": (4, 9), "$alone": UNBOUNDED}


def test_bounds_pass_through_missing_neighbours() -> None:
    edges = [EventEdge("$a", "$before", None, 4), EventEdge("$b", "$a", None, None), EventEdge("$after", "$b", 9, None)]
    assert compute_id_spans({"$a", "$b"}, edges) == {"$a": (4, 8), "$b": (5, 9)}


def test_edges_in_a_cycle_are_accepted() -> None:
    assert set(
        compute_id_spans({"$a", "$b"}, [EventEdge("$b", "$a", None, None), EventEdge("$a", "$b", None, None)])
    ) == {"$a", "$b"}


def test_a_known_id_bounds_its_neighbours() -> None:
    edges = [EventEdge("$b", "$a", None, None), EventEdge("$c", "$b", None, None)]
    attested_ids = [AttestedId("$b", 6, is_own=True)]
    assert compute_id_spans({"$a", "$b", "$c"}, edges, attested_ids) == {"$a": (-inf, 6), "$b": (5, 7), "$c": (6, inf)}
    attested_ids = [AttestedId("$b", 6, is_own=False)]
    assert compute_id_spans({"$a", "$b", "$c"}, edges, attested_ids) == {
        "$a": UNBOUNDED,
        "$b": (5, inf),
        "$c": (6, inf),
    }


def assigned_ranges(missing: list[IdRange], spans: list[IdSpan]) -> list[IdRange]:
    def iterate_missing() -> Iterator[IdRange]:
        yield from missing

    return find_assigned_ranges(iterate_missing, spans)


def test_the_only_remaining_id_is_inferred() -> None:
    assert assigned_ranges([(5, 5), (8, 9)], [(4, 7)]) == [(5, 5)]
    assert assigned_ranges([(5, 6), (8, 9)], [(4, 7)]) == []
    assert assigned_ranges([(5, 6), (8, 9)], [(4, 7), (4, 7)]) == [(5, 6)]
    assert assigned_ranges([(-3, -3), (5, 6), (8, 9)], [(4, 9), (4, 9), (5, 9)]) == [(5, 6), (8, 8)]
    assert assigned_ranges([(5, 6)], [UNBOUNDED, UNBOUNDED]) == [(5, 6)]
    assert assigned_ranges([], [UNBOUNDED]) == []


IDS = st.integers(-8, 8)


@given(st.sets(IDS, min_size=1, max_size=6), st.lists(st.tuples(IDS, IDS), max_size=4))
def test_an_inferred_id_is_in_every_solution(missing: set[int], bounds: list[tuple[int, int]]) -> None:
    spans: list[IdSpan] = [(min(pair) - 1, max(pair) + 1) for pair in bounds]
    choices = [
        set(ids)
        for ids in permutations(sorted(missing), len(spans))
        if all(after < number < before for number, (after, before) in zip(ids, spans, strict=True))
    ]
    starts = [number for number in sorted(missing) if number - 1 not in missing]
    ranges = [(start, next(end for end in range(start, 10) if end + 1 not in missing)) for start in starts]
    actual = {number for first, last in assigned_ranges(ranges, spans) for number in range(first, last + 1)}
    assert actual <= missing
    if choices:
        assert actual == set.intersection(*choices)
