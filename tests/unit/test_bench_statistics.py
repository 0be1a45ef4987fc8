import pytest

from bench.meter import Cost
from bench.results import DECODED, ENCODED, JDBC, OURS, SENT, Results, Sample, Stage
from bench.statistics import Spread, cost_a_row, rate, ratio, spread


def sample(number: int, contender: str, table: str, rows: int, wall: float, cpu: float = 1.0) -> Sample:
    return Sample(number, contender, table, rows, 0, Cost(wall, cpu, 0.5, 100))


def stage(name: str, cpu: float, source_cpu: float) -> Stage:
    return Stage("events", name, 1_000_000, 0, 1.0, cpu, source_cpu)


def test_a_spread_is_the_median_between_the_extremes() -> None:
    assert spread([3.0, 1.0, 8.0]) == Spread(3.0, 1.0, 8.0)


def test_a_rate_over_all_tables_is_their_rows_over_their_time() -> None:
    samples = [sample(1, OURS, "events", 100, 1.0), sample(1, OURS, "event_json", 300, 3.0)]
    assert rate(samples, OURS) == Spread(100.0, 100.0, 100.0)
    assert rate(samples, OURS, "event_json").median == 100.0


def test_ratios_compare_copies_of_the_same_round() -> None:
    samples = [
        sample(1, OURS, "events", 1, 1.0), sample(1, JDBC, "events", 1, 2.0),
        sample(2, OURS, "events", 1, 10.0), sample(2, JDBC, "events", 1, 40.0),
    ]  # fmt: skip
    assert ratio(samples, OURS, JDBC, lambda one: one.cost.wall) == Spread(3.0, 2.0, 4.0)


def test_what_no_stage_explains_is_everything_else() -> None:
    results = Results(
        1.0, {}, {"events": 1_000_000}, {}, [sample(1, OURS, "events", 1_000_000, 5.0, cpu=4.0)],
        [stage(SENT, 0.1, 0.5), stage(DECODED, 1.0, 0.6), stage(ENCODED, 2.0, 0.0)],
    )  # fmt: skip
    costs = cost_a_row(results, "events")
    assert costs == pytest.approx({"PostgreSQL": 0.5, "ADBC": 1.0, "Parquet": 2.0, "everything else": 1.0})


def test_stages_dearer_alone_than_together_leave_nothing_else() -> None:
    results = Results(
        1.0, {}, {"events": 1_000_000}, {}, [sample(1, OURS, "events", 1_000_000, 5.0, cpu=0.1)],
        [stage(SENT, 0.1, 0.5), stage(DECODED, 1.0, 0.6), stage(ENCODED, 2.0, 0.0)],
    )  # fmt: skip
    assert cost_a_row(results, "events")["everything else"] == 0.0
