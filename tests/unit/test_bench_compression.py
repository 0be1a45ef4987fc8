"""What ``bench.compression`` says about itself: whose rows it counts, and what it reads in a server's log."""

import pytest
from hypothesis import given

from bench.compression.contest import Plan, Rewritten
from bench.compression.planning import least_rows
from bench.compression.report import GOALS, Results, Round, write
from bench.compression.transactions import Transaction, transactions
from synapse_lakehouse.compressor.algorithm import fewest_rows
from synapse_lakehouse.compressor.algorithm.state_groups import StateGroups
from tests.unit.test_compression_best import WORLDS, whole


@given(WORLDS)
def test_nothing_goes_below_the_least_rows(groups: StateGroups) -> None:
    least = least_rows(groups)
    assert least <= len(fewest_rows.minimize_rows(groups, whole(groups), len(groups)).keys)
    assert least <= len(groups.keys)


@given(WORLDS)
def test_least_rows_are_what_is_new_in_each_state_or_one_where_all_of_it_is_known(groups: StateGroups) -> None:
    states: list[dict[int, int]] = []
    known: set[tuple[int, int]] = set()
    seen: set[frozenset[tuple[int, int]]] = {frozenset()}
    expected = 0
    for prev, start, end in zip(groups.prev, groups.starts, groups.starts[1:], strict=False):
        rows = dict(zip(groups.keys[start:end].tolist(), groups.events[start:end].tolist(), strict=True))
        states.append((states[prev] if prev >= 0 else {}) | rows)
        state = frozenset(states[-1].items())
        expected += max(len(state - known), int(state not in seen))
        known |= state
        seen.add(state)
    assert least_rows(groups) == expected


def test_a_transaction_lasts_from_its_first_lock_to_its_commit() -> None:
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


@pytest.fixture
def results() -> Results:
    def plan(rows: int, cpu: float) -> Plan:
        return Plan(rows_before=1000, rows_after=rows, least=100, cpu=cpu, memory=300_000_000)

    def rewritten(rows: int, cpu: float, writing: float) -> Rewritten:
        return Rewritten(rows_after=rows, wall=cpu, cpu=cpu, moved=500, writing=writing, locks=[0.02, 0.08])

    one = Round(
        levels=plan(400, 1.0), best=plan(160, 2.0), reference=rewritten(400, 30.0, 10.0),
        levels_applied=rewritten(400, 3.0, 2.5), best_applied=rewritten(160, 4.0, 1.0),
    )  # fmt: skip
    return Results(
        1.0,
        {"Processor": "2 cores"},
        {name: [one, one] for name in GOALS},
        dict.fromkeys(("levels", "best"), plan(1, 3.0)),
    )


def test_the_page_says_which_goals_were_reached(results: Results) -> None:
    page = write(results)
    assert "| of the reference's rows left by best, all rooms | ≤ 0.62 | 0.40 | reached |" in page
    assert "| times less CPU than the reference, levels | ≥ 20 | 30.00 (30.00 to 30.00) | reached |" in page
    assert "| times the rows a second of the reference, writing | ≥ 5 | 4.00 (4.00 to 4.00) | missed |" in page
    assert "| times the rows a second of the reference, in all | ≥ 5 | 10.00 (10.00 to 10.00) | reached |" in page
    assert "| ms that a transaction holds locks, at most | ≤ 100 | 80 | reached |" in page
    assert "| **all rooms** | 4,000 | 1,600 | 640 | 0.40 | 400 |" in page
