"""Ids of events that are known by their JSON alone: what their neighbours leave."""

from collections.abc import Iterator
from itertools import permutations
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.streams.gaps.event_ids import ANYWHERE, Edge, Name, Range, Span, spans, taken


def test_an_id_lies_between_those_of_the_neighbours() -> None:
    edges = [Edge("$a", "$before", None, 4), Edge("$a", "$earlier", None, 2), Edge("$after", "$a", 9, None)]
    assert spans({"$a", "$alone"}, edges) == {"$a": (4, 9), "$alone": ANYWHERE}


def test_neighbours_that_are_missed_too_pass_on_what_is_known_of_theirs() -> None:
    edges = [Edge("$a", "$before", None, 4), Edge("$b", "$a", None, None), Edge("$after", "$b", 9, None)]
    assert spans({"$a", "$b"}, edges) == {"$a": (4, 8), "$b": (5, 9)}


def test_edges_in_a_circle_are_no_trouble() -> None:
    assert set(spans({"$a", "$b"}, [Edge("$b", "$a", None, None), Edge("$a", "$b", None, None)])) == {"$a", "$b"}


def test_what_is_known_of_an_id_holds_for_the_neighbours_too() -> None:
    edges = [Edge("$b", "$a", None, None), Edge("$c", "$b", None, None)]
    names = [Name("$b", 6, is_own=True)]
    assert spans({"$a", "$b", "$c"}, edges, names) == {"$a": (-inf, 6), "$b": (5, 7), "$c": (6, inf)}
    names = [Name("$b", 6, is_own=False)]
    assert spans({"$a", "$b", "$c"}, edges, names) == {"$a": ANYWHERE, "$b": (5, inf), "$c": (6, inf)}


def chosen(missing: list[Range], between: list[Span]) -> list[Range]:
    def once() -> Iterator[Range]:
        yield from missing

    return taken(once, between)


def test_an_owner_takes_the_only_id_that_is_left() -> None:
    assert chosen([(5, 5), (8, 9)], [(4, 7)]) == [(5, 5)]
    assert chosen([(5, 6), (8, 9)], [(4, 7)]) == []
    assert chosen([(5, 6), (8, 9)], [(4, 7), (4, 7)]) == [(5, 6)]
    assert chosen([(-3, -3), (5, 6), (8, 9)], [(4, 9), (4, 9), (5, 9)]) == [(5, 6), (8, 8)]
    assert chosen([(5, 6)], [ANYWHERE, ANYWHERE]) == [(5, 6)]
    assert chosen([], [ANYWHERE]) == []


IDS = st.integers(-8, 8)


@given(st.sets(IDS, min_size=1, max_size=6), st.lists(st.tuples(IDS, IDS), max_size=4))
def test_what_is_taken_is_taken_in_every_choice(missing: set[int], bounds: list[tuple[int, int]]) -> None:
    between: list[Span] = [(min(pair) - 1, max(pair) + 1) for pair in bounds]
    choices = [
        set(ids)
        for ids in permutations(sorted(missing), len(between))
        if all(after < one < before for one, (after, before) in zip(ids, between, strict=True))
    ]
    starts = [one for one in sorted(missing) if one - 1 not in missing]
    ranges = [(one, next(end for end in range(one, 10) if end + 1 not in missing)) for one in starts]
    found = {one for first, last in chosen(ranges, between) for one in range(first, last + 1)}
    assert found <= missing
    if choices:
        assert found == set.intersection(*choices)
