"""Safe bounds of streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.streams.positions.safe_bound import (
    BoundRule,
    SafeBound,
    compute_bound,
    compute_closed_end,
    extend_without_gap,
    find_accepted_rule,
    find_learned_writers,
    find_missing_writers,
)

WRITERS = st.dictionaries(st.sampled_from(["master", "ep1", "ep2", "sw1"]), st.integers(1, 50), min_size=1)


def test_the_bound_is_the_minimum_of_the_writers() -> None:
    bound = compute_bound({"ep1": 7, "ep2": 9}, frozenset({"ep1", "ep2"}), [], sign=1, is_used=True)
    assert (bound.minimum, bound.rule) == (7, BoundRule.CONFIGURED)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_unconfigured_writer_with_a_position_counts(sign: int) -> None:
    def bound(before: dict[str, int] | None, position: int = 2) -> SafeBound:
        positions = {"ep1": sign * 7, "ep2": sign * 9, "other": sign * position}
        previous = None if before is None else {writer: sign * position for writer, position in before.items()}
        return compute_bound(positions, frozenset({"ep1", "ep2"}), [], sign=sign, is_used=True, before=previous)

    for before in (None, {"ep1": 7, "ep2": 9, "other": 2}):
        assert bound(before) == SafeBound(sign * 2, BoundRule.UNCONFIGURED_WRITER, unknown=("other",))
    # A position ahead of the others does not prove that its writer is active.
    assert bound({"ep1": 1, "ep2": 1, "other": 20}, 20) == SafeBound(
        sign * 7, BoundRule.UNCONFIGURED_WRITER, unknown=("other",)
    )
    for previous in ({"ep1": 7, "ep2": 9, "other": 1}, {"ep1": 7, "ep2": 9}):
        assert bound(previous) == SafeBound(sign * 2, BoundRule.UNKNOWN_WRITER, unknown=("other",))


def test_the_bound_of_backfill_is_the_maximum() -> None:
    bound = compute_bound({"ep1": -3611, "ep2": -3600}, frozenset({"ep1", "ep2"}), [], sign=-1, is_used=True)
    assert bound.minimum == -3600


def test_a_configured_writer_without_a_position_leaves_no_bound() -> None:
    bound = compute_bound({"ep1": 7}, frozenset({"ep1", "ep2"}), [], sign=1, is_used=True)
    assert (bound.minimum, bound.rule, bound.missing) == (None, BoundRule.MISSING_WRITER, ("ep2",))


@pytest.mark.parametrize("positions", [{}, {"ep1": 7}])
def test_an_empty_list_of_writers_leaves_no_bound(positions: dict[str, int]) -> None:
    bound = compute_bound(positions, frozenset(), [], sign=1, is_used=True)
    assert bound == SafeBound(None, BoundRule.MISSING_WRITER)


def test_a_missing_writer_may_be_a_renamed_one() -> None:
    def unknown(before: dict[str, int] | None) -> tuple[str, ...]:
        writers = frozenset({"ep1", "epp2"})
        return compute_bound({"ep1": 7, "ep2": 9}, writers, [], sign=1, is_used=True, before=before).unknown

    assert (unknown(None), unknown({"ep2": 8}), unknown({"ep2": 9})) == (("ep2",), ("ep2",), ())


def test_inferred_writers_come_from_rows_too() -> None:
    assert compute_bound({"ep1": 7}, None, ["ep1"], sign=1, is_used=True).rule is BoundRule.PROVISIONAL
    assert compute_bound({"ep1": 7}, None, ["ep2"], sign=1, is_used=True).missing == ("ep2",)


@pytest.mark.parametrize(
    ("positions", "row_writers", "missing"),
    [({"ep1": 7, "ep2": 9}, ["master"], ("master",)), ({"ep1": 7}, ["ep2"], ("ep2",)), ({}, [], ())],
    ids=["former monolith", "new writer", "no writer at all"],
)
def test_a_missing_learned_writer_has_a_rule_of_its_own(
    positions: dict[str, int], row_writers: list[str], missing: tuple[str, ...]
) -> None:
    bound = compute_bound(positions, None, row_writers, sign=1, is_used=True)
    assert bound == SafeBound(None, BoundRule.MISSING_LEARNED_WRITER, missing)
    configured = compute_bound(positions, frozenset({*positions, "ep9"}), row_writers, sign=1, is_used=True)
    assert configured.rule is BoundRule.MISSING_WRITER


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"rule": "provisional", "safe_bound": 9, "previous_rule": "configured"}, "provisional"),
        ({"rule": "configured", "safe_bound": 9, "previous_rule": "provisional"}, "configured"),
        ({"rule": "missing_writer", "safe_bound": None, "previous_rule": "provisional"}, "provisional"),
        ({"rule": "missing_learned_writer", "safe_bound": None, "previous_rule": None}, None),
        ({"rule": "not_copied", "safe_bound": 9, "previous_rule": "provisional"}, "provisional"),
    ],
)
def test_a_run_without_a_bound_retains_the_accepted_rule(row: dict[str, object], rule: str | None) -> None:
    assert find_accepted_rule(row) == rule


def test_an_unused_stream_has_no_missing_writer() -> None:
    assert compute_bound({}, frozenset({"ep1"}), [], sign=1, is_used=False).rule is BoundRule.UNUSED


def test_a_used_stream_without_any_position_has_no_bound() -> None:
    assert compute_bound({}, None, [], sign=1, is_used=True).minimum is None


def test_vanished_writers_are_missing_unless_renamed() -> None:
    assert find_missing_writers({"ep1"}, {"ep1", "ep2"}, ()) == {"ep2"}
    assert find_missing_writers({"ep1"}, {"ep1"}, {"ep2"}) == {"ep2"}, "it is missing until it returns"
    assert find_missing_writers({"ep1", "ep3"}, {"ep1", "ep2"}, ()) == set(), "renamed"
    assert find_missing_writers({"ep3"}, {"ep1", "ep2"}, ()) == {"ep2"}, "one writer was renamed"
    assert find_missing_writers({"ep3", "ep4"}, {"ep3"}, {"ep2"}) == set(), "the other writer was renamed too"
    assert find_missing_writers((), {"main"}, ()) == find_missing_writers((), (), {"main"}) == {"main"}
    assert find_missing_writers({"worker"}, (), {"main"}) == set(), "renamed, and writes for the first time"
    assert find_missing_writers({"ep1", "ep2"}, {"ep1"}, {"ep2"}) == set()


@pytest.mark.parametrize(
    ("row_writers", "former_row_writers", "missing", "learned"),
    [
        ({"ep1", "ep2"}, {"ep1"}, set(), {"ep2"}),
        ({"ep1", "old"}, {"ep1", "old"}, set(), set()),
        ({"ep1", "ep2"}, {"ep1", "ep2"}, {"ep2"}, {"ep2"}),
        ({"ep1", "master"}, {"ep1"}, set(), set()),
        ({"ep1", "master"}, {"ep1"}, {"master"}, {"master"}),
    ],
    ids=["first row", "removed earlier", "vanished", "rows without a writer", "vanished main process"],
)
def test_writers_are_learned_from_new_rows(
    row_writers: set[str], former_row_writers: set[str], missing: set[str], learned: set[str]
) -> None:
    assert find_learned_writers(row_writers, former_row_writers, missing, "master") == learned


@given(WRITERS, st.sets(st.integers(1, 60)), st.sampled_from([1, -1]))
def test_the_bound_never_passes_a_writer_nor_a_missing_id(positions: dict[str, int], ids: set[int], sign: int) -> None:
    signed_positions = {writer: sign * position for writer, position in positions.items()}
    bound = compute_bound(signed_positions, frozenset(positions), [], sign=sign, is_used=True)
    assert bound.minimum == sign * min(positions.values())
    end = sign * extend_without_gap(bound.minimum, [sign * id_ for id_ in ids], sign=sign)
    assert end >= min(positions.values())
    assert set(range(min(positions.values()) + 1, end + 1)) <= ids
    assert end + 1 not in ids


@given(WRITERS, st.sets(st.integers(1, 60)), st.integers(0, 20))
def test_the_bound_only_rises_as_writers_advance(positions: dict[str, int], ids: set[int], steps: int) -> None:
    writers = frozenset(positions)
    before = compute_bound(positions, writers, [], sign=1, is_used=True).minimum
    after = compute_bound({w: p + steps for w, p in positions.items()}, writers, [], sign=1, is_used=True).minimum
    assert before is not None
    assert after is not None
    assert extend_without_gap(after, ids, sign=1) >= extend_without_gap(before, ids, sign=1)


@given(WRITERS, st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60)), st.integers(0, 9), st.sampled_from([1, -1]))
def test_purges_never_lower_a_bound(
    positions: dict[str, int], ids: set[int], purged: set[int], steps: int, sign: int
) -> None:
    def end(positions: dict[str, int], ids: set[int], accepted: int | None, before: dict[str, int]) -> int:
        minimum = compute_bound(positions, frozenset(positions), [], sign=sign, is_used=True).minimum
        assert minimum is not None
        closed = compute_closed_end(minimum, accepted, positions, before, sign=sign)
        return extend_without_gap(closed, [sign * id_ for id_ in ids], sign=sign)

    before = {writer: sign * position for writer, position in positions.items()}
    after = {writer: sign * (position + steps) for writer, position in positions.items()}
    first = end(before, ids, None, {})
    second = end(after, ids - purged, first, before)
    assert sign * second >= sign * first
    assert sign * second >= min(sign * position for position in after.values())


def test_a_regressed_position_lowers_the_bound() -> None:
    assert compute_closed_end(7, 9, {"ep1": 7, "ep2": 8}, {"ep1": 7, "ep2": 9}, sign=1) == 7
    assert compute_closed_end(7, 9, {"ep1": 7, "new": 8}, {"ep1": 7, "gone": 9}, sign=1) == 9
    assert compute_closed_end(-7, -9, {"ep1": -7, "ep2": -9}, {"ep1": -7, "ep2": -9}, sign=-1) == -9
