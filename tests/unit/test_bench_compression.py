"""Arithmetic of ``bench.compression``: the lower bound of rows, and the transactions of a log."""

from hypothesis import given

from bench.compression.plan_process import minimum_rows
from bench.compression.transaction_log import Transaction, transactions
from synapse_lakehouse.compressor.algorithm import fewest_rows
from synapse_lakehouse.compressor.algorithm.state_groups import StateGroups
from tests.unit.test_fewest_rows import WORLDS, select_all


@given(WORLDS)
def test_no_plan_has_fewer_than_the_minimum_rows(groups: StateGroups) -> None:
    lower_bound = minimum_rows(groups)
    assert lower_bound <= len(fewest_rows.minimize_rows(groups, select_all(groups), len(groups)).keys)
    assert lower_bound <= len(groups.keys)


@given(WORLDS)
def test_minimum_rows_count_new_entries_or_one_for_a_new_state(groups: StateGroups) -> None:
    states: list[dict[int, int]] = []
    old_entries: set[tuple[int, int]] = set()
    observed: set[frozenset[tuple[int, int]]] = {frozenset()}
    expected = 0
    for prev, start, end in zip(groups.prev, groups.starts, groups.starts[1:], strict=False):
        rows = dict(zip(groups.keys[start:end].tolist(), groups.events[start:end].tolist(), strict=True))
        states.append((states[prev] if prev >= 0 else {}) | rows)
        state = frozenset(states[-1].items())
        expected += max(len(state - old_entries), int(state not in observed))
        old_entries |= state
        observed.add(state)
    assert minimum_rows(groups) == expected


def test_transaction_lasts_from_first_lock_to_commit() -> None:
    log = """
        1000.000 7 0 room BEGIN LOG:  duration: 0.010 ms
        1000.500 7 0 room SELECT LOG:  duration: 200.000 ms
        1000.600 7 0 room COMMIT LOG:  duration: 0.020 ms
        1001.000 7 0 room BEGIN LOG:  duration: 0.010 ms
        1001.250 7 0 room SELECT LOG:  duration: 10.000 ms
        1001.375 7 55 room SELECT LOG:  duration: 125.000 ms
        1001.380 9 0 other BEGIN LOG:  duration: 0.010 ms
        1001.400 7 55 room COPY LOG:  duration: 1.000 ms
        1001.450 9 56 other INSERT LOG:  duration: 0.000 ms
        1001.500 7 0 room COMMIT LOG:  duration: 0.500 ms
        1002.000 7 0 room COMMIT LOG:  duration: 500.000 ms
        1003.000 9 0 other ROLLBACK LOG:  duration: 0.100 ms
        LOG:  checkpoint complete
    """
    lines = [line.strip() for line in log.splitlines()]
    assert list(transactions(lines)) == [
        Transaction("room", 1001.25, 1001.5),
        # A transaction that was sent as one statement.
        Transaction("room", 1001.5, 1002.0),
        Transaction("other", 1001.45, 1003.0),
    ]
