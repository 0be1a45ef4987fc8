"""Arithmetic of the benchmarks: spreads, ratios, slopes, rates, CPU time per row, page ranges."""

import pytest

from bench.copy.contenders import CopyResult
from bench.copy.full_copies import JDBC, LAKEHOUSE, FullCopy, row_rate, total_cost
from bench.copy.select_statements import first_pages
from bench.copy.stages import StageRun, cost_per_row
from bench.meter import Cost
from bench.report import format_cell
from bench.statistics import Spread, ratio, slope, spread


def full_copy(number: int, contender: str, table: str, rows: int, wall: float, cpu: float = 1.0) -> FullCopy:
    return FullCopy(number, contender, table, CopyResult(rows, 0), Cost(wall, cpu, 0.5, 100))


def stage_run(stage: str, cpu: float, source_cpu: float) -> StageRun:
    return StageRun("events", stage, 1_000_000, Cost(1.0, cpu, source_cpu, 0))


def test_spread_is_median_and_extremes() -> None:
    assert spread([3.0, 1.0, 8.0]) == Spread(3.0, 1.0, 8.0)


def test_rate_of_all_tables_is_total_rows_by_total_seconds() -> None:
    copies = [full_copy(1, LAKEHOUSE, "events", 100, 1.0), full_copy(1, LAKEHOUSE, "event_json", 300, 2.0)]
    assert row_rate(copies, LAKEHOUSE) == spread([400 / 3])
    assert row_rate(copies, LAKEHOUSE, "event_json").median == 150.0


def test_ratio_compares_the_same_round() -> None:
    copies = [
        full_copy(1, LAKEHOUSE, "events", 1, 1.0), full_copy(1, JDBC, "events", 1, 2.0),
        full_copy(2, LAKEHOUSE, "events", 1, 10.0), full_copy(2, JDBC, "events", 1, 40.0),
    ]  # fmt: skip
    assert ratio(total_cost(copies, JDBC, "wall"), total_cost(copies, LAKEHOUSE, "wall")) == Spread(3.0, 2.0, 4.0)


@pytest.mark.parametrize(("exponent", "count"), [(1.0, 3), (0.5, 3), (0.0, 3), (0.0, 1)])
def test_slope_is_the_exponent_of_growth(exponent: float, count: int) -> None:
    points = [(10.0**power, 2 * 10.0 ** (power * exponent)) for power in range(count)]
    assert slope(points) == pytest.approx(exponent)


@pytest.mark.parametrize(("copy_cpu", "remainder"), [(4.0, 1.0), (0.1, 0.0)])
def test_cost_per_row_has_a_remainder_that_is_never_negative(copy_cpu: float, remainder: float) -> None:
    runs = [stage_run("send_select", 0.1, 0.5), stage_run("decode", 1.0, 0.6), stage_run("encode", 2.0, 0.0)]
    costs = cost_per_row(runs, [full_copy(1, LAKEHOUSE, "events", 1_000_000, 5.0, copy_cpu)], "events")
    assert costs == pytest.approx({"PostgreSQL": 0.5, "ADBC": 1.0, "Parquet": 2.0, "everything else": remainder})


def test_page_ranges_cover_all_pages() -> None:
    assert first_pages(100, 4) == [0, 25, 50, 75]
    assert first_pages(2, 4) == [0, 1]
    assert first_pages(0, 4) == [0]


def test_cells_have_decimals_only_below_a_thousand() -> None:
    cells = [format_cell(value) for value in (1234.0, 12.25, 1234567, "x", None)]
    assert cells == ["1,234", "12.25", "1,234,567", "x", ""]
    assert format_cell(Spread(2.0, 1.5, 1000.0)) == "2.00 (1.50 to 1,000)"
