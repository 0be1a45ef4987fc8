"""Charts and formatted values of the report page."""

from datetime import UTC, date, datetime, timedelta

import pytest

from synapse_lakehouse.report import charts, format_values
from synapse_lakehouse.report.panel import Format

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "format", "text"),
    [
        (None, Format.NUMBER, "-"),
        (1234567, Format.NUMBER, "1,234,567"),
        (1536, Format.BYTES, "1.5 KiB"),
        (90, Format.SECONDS, "90.0 s"),
        (600, Format.SECONDS, "10.0 min"),
        (7200, Format.SECONDS, "2.0 h"),
        (96, Format.HOURS, "4.0 days"),
        (NOON, Format.TIME, "2026-11-20 12:00 UTC"),
        (date(2026, 11, 20), Format.DAY, "2026-11-20"),
        ("=1+1", Format.TEXT, "'=1+1"),
        ("\x1b[31m", Format.TEXT, "\\x1b[31m"),
    ],
)
def test_values_are_formatted(value: object, format: Format, text: str) -> None:
    assert format_values.format_value(value, format) == text


def test_series_are_ranked_and_limited() -> None:
    rows = [{"type": name, "events": count} for name, count in (("a", 1), ("other types", 90), ("b", 5), ("a", 2))]
    assert charts.rank_series(rows, "type", "events") == ["b", "a", "other types"]
    many_rows = [{"type": str(number), "events": number} for number in range(20)]
    assert len(charts.rank_series(many_rows, "type", "events")) == charts.MAX_SERIES


def test_a_single_day_is_one_narrow_bar() -> None:
    rows = [{"day": date(2026, 11, 20), "type": "a", "events": 3}]
    spec = charts.to_spec(charts.draw_stacked_days(rows, "day", "type", "events", "events"), "text")
    assert spec["encoding"]["x"]["scale"]["domain"] == ["2026-11-07", "2026-11-21"]
    assert spec["description"] == "text"


@pytest.mark.parametrize("days", [0, 40])
def test_lines_differ_in_colour_and_dashes(days: int) -> None:
    rows = [{"at": NOON + timedelta(days=day), "name": name, "n": 1} for day in (0, days) for name in "ab"]
    encoding = charts.to_spec(charts.draw_lines(rows, "at", "name", "n", "n", timedelta(days=40)), "")["encoding"]
    for channel in ("color", "strokeDash"):
        assert encoding[channel]["scale"]["domain"] == ["a", "b"]
        assert len(encoding[channel]["scale"]["range"]) == 2


@pytest.mark.parametrize("greatest", [0, 3, 1023, 1024, 5000, 3 * 1024**3, 900 * 1024**4])
def test_sizes_have_ticks_at_binary_units(greatest: int) -> None:
    rows = [{"name": "a", "bytes": greatest}]
    spec = charts.to_spec(charts.draw_bars(rows, "name", "bytes", "size", unit=Format.BYTES), "")
    ticks = spec["encoding"]["x"]["axis"]["values"]
    assert ticks[0] == 0
    assert ticks[-1] > greatest
    assert sum(tick <= greatest for tick in ticks) <= 6


def test_a_line_breaks_where_a_series_has_no_row() -> None:
    hours = {"a": (0, 1, 4), "b": (0, 1, 2, 3, 4)}
    rows = [{"at": NOON + timedelta(hours=h), "name": name, "n": 1} for name, at in hours.items() for h in at]
    spec = charts.to_spec(charts.draw_lines(rows, "at", "name", "n", "n", timedelta(hours=1)), "")
    (values,) = spec["datasets"].values()
    gaps = [(row["at"], row["name"]) for row in values if row["n"] is None]
    assert gaps == [("2026-11-20T14:00:00+00:00", "a")]
    assert spec["mark"]["invalid"] == "break-paths-show-domains"


@pytest.mark.parametrize(
    ("least", "greatest", "ticks", "unit"),
    [
        (0, 0, [0, 1], "ms"),
        (0, 93_600_000, [0, 43_200_000, 86_400_000, 129_600_000], "h"),
        (0, 40_000_000, [0, 10_800_000, 21_600_000, 32_400_000, 43_200_000], "h"),
        (-300, 317, [-400, -200, 0, 200, 400], "ms"),
        (0, 3500, [0, 1000, 2000, 3000, 4000], "s"),
    ],
)
def test_durations_have_ticks_at_whole_units(least: int, greatest: int, ticks: list[int], unit: str) -> None:
    rows = [{"at": NOON, "name": "a", "n": n} for n in (least, greatest, None)]
    line = charts.draw_lines(rows, "at", "name", "n", "n", timedelta(hours=1), is_duration=True)
    axis = charts.to_spec(line, "")["encoding"]["y"]
    assert axis["axis"]["values"] == ticks
    assert axis["scale"]["domain"] == [ticks[0], ticks[-1]]
    assert f"' {unit}'" in axis["axis"]["labelExpr"]
