"""The report of ``bench.tap``."""

from bench.tap import GOAL, Landed, write


def test_the_goal_is_held_against_the_slowest_round_that_was_asked_for_as_much() -> None:
    rounds = [
        Landed(GOAL // 2, 200_000, 200_000, 0, 50.0, 140_000_000, 6.1),
        Landed(GOAL, 400_000, 400_000, 0, 10.0, 150_000_000, 6.5),
        Landed(GOAL * 2, 800_000, 799_999, 1, 16.0, 150_000_000, 7.0),
    ]
    page = write({"Processor": "2 cores"}, rounds, [5.5, 7.25])
    assert "| 20,000 | 400,000 | 400,000 | 0 | 10.0 | 40,000 | 150 | 6.5 |" in page
    assert "| RDATA landed for each CPU second | ≥ 20,000 | 40,000 |" in page
    assert "| seconds from the wire to the lake, at most | ≤ 10 | 7.2 |" in page
