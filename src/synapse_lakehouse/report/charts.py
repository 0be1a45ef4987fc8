"""Charts of rows, by Altair. Pure.

Colours are variables of the page's style sheet, so that one chart serves light and dark mode. The colours of the series
are those of Okabe and Ito, which people with any colour vision can tell apart; line charts use dashes too.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from math import ceil, floor, log
from typing import Any, Final

import altair as alt

from synapse_lakehouse.report.format_values import format_value, to_chart_value
from synapse_lakehouse.report.panel import Format, Row

SERIES: Final = tuple(f"var(--series-{number})" for number in range(1, 9))
MAX_SERIES: Final = len(SERIES)
SEVERITIES: Final = {"fail": "fail: wrong answers", "warn": "warn: examine", "info": "info: normal"}
OTHERS: Final = ("other rooms", "other types", "other rows")
"""Series that combine all values without a series of their own."""
_OWN_COLORS: Final = {
    SEVERITIES["fail"]: "var(--serious)",
    SEVERITIES["warn"]: "var(--warning)",
    **dict.fromkeys((SEVERITIES["info"], *OTHERS), "var(--series-other)"),
}
_DASHES: Final = ([1, 0], [6, 2], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3], [10, 2], [6, 2, 1, 2])
_BAR_HEIGHT: Final = 26
_STEPS: Final = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 1_000_000)
_SHORTEST_SPAN: Final = timedelta(days=13)
_BYTES_AXIS: Final = (
    "datum.value >= 1099511627776 ? format(datum.value / 1099511627776, '.3~r') + ' TiB'"
    " : datum.value >= 1073741824 ? format(datum.value / 1073741824, '.3~r') + ' GiB'"
    " : datum.value >= 1048576 ? format(datum.value / 1048576, '.3~r') + ' MiB'"
    " : datum.value >= 1024 ? format(datum.value / 1024, '.3~r') + ' KiB' : format(datum.value, ',') + ' B'"
)
_DURATION_UNITS: Final = {
    "ms": (1, (1, 2, 5, 10, 20, 50, 100, 200)),
    "s": (1000, (0.5, 1, 2, 5, 10, 15, 30)),
    "min": (60_000, (1, 2, 5, 10, 15, 30)),
    "h": (3_600_000, (1, 2, 3, 6, 12, 24)),
    "d": (86_400_000, (2, 5, 10, 20, 50, 100, 1000, 10_000, 100_000)),
}
"""By unit: its milliseconds, and the possible distances between ticks, in this unit."""
CONFIG: Final[Mapping[str, Any]] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **dict.fromkeys(("labelColor", "titleColor"), "var(--ink)"),
        **dict.fromkeys(("gridColor", "domainColor", "tickColor"), "var(--line)"),
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelOverlap": True,
    },
    "legend": {
        **dict.fromkeys(("labelColor", "titleColor"), "var(--ink)"),
        "labelFontSize": 12, "orient": "bottom", "title": None, "symbolStrokeWidth": 2,
    },
    "line": {"strokeWidth": 2},
}  # fmt: skip
"""Vega-Lite's configuration of all charts."""


def draw_stacked_days(rows: Sequence[Row], day: str, series: str, value: str, title: str) -> alt.Chart:
    """Return bars by day, stacked by series in the order of their totals."""
    order = rank_series(rows, series, value)
    first, last = min(row[day] for row in rows), max(row[day] for row in rows)
    # A wide bar for a single day would look like a constant rate.
    days = [min(first, last - _SHORTEST_SPAN), last + timedelta(days=1)]
    scale = alt.Scale(type="utc", domain=[moment.isoformat() for moment in days])
    chart: alt.Chart = (
        _chart(rows, {day: (day, Format.DAY), series: (series, Format.TEXT), value: (title, Format.NUMBER)})
        .mark_bar()
        .encode(
            x=alt.X(
                f"{day}:T",
                title=None,
                timeUnit=alt.TimeUnitParams(unit="yearmonthdate", utc=True),
                scale=scale,
                axis=alt.Axis(format="%b %d", tickCount=8, labelBound=True),
            ),
            y=alt.Y(f"{value}:Q", title=title, stack="zero", axis=_count_axis(6)),
            color=_color(series, order),
        )
        .properties(width="container", height=260)
    )
    return chart


def draw_lines(
    rows: Sequence[Row], at: str, series: str, value: str, title: str, step: timedelta, *, is_duration: bool = False
) -> alt.Chart:
    """Return a line over time for each series.

    :param step: the time between two rows of a series; the line breaks where the time is longer.
    :param is_duration: the values are milliseconds.
    """
    axis, scale = _duration_axis(rows, value) if is_duration else (_count_axis(6), alt.Scale())
    unit = Format.MILLISECONDS if is_duration else Format.NUMBER
    moment = ("day", Format.DAY) if step >= timedelta(days=1) else ("time", Format.TIME)
    shown = {at: moment, series: (series, Format.TEXT), value: (title, unit)}
    order = rank_series(rows, series, value)
    moments = [row[at] for row in rows]
    gaps = _find_gaps(rows, at, series, step)
    form = "%b %d %H:%M" if max(moments) - min(moments) <= timedelta(days=2) else "%b %d"
    dash = alt.StrokeDash(f"{series}:N", sort=order, scale=alt.Scale(domain=order, range=list(_DASHES[: len(order)])))
    chart: alt.Chart = (
        _chart([*rows, *({**gap, value: None} for gap in gaps)], shown)
        # A line of one value is only visible as a point.
        .mark_line(point={"size": 25} if gaps or len(set(moments)) < 40 else False, invalid="break-paths-show-domains")
        .encode(
            x=alt.X(
                f"{at}:T",
                title=None,
                scale=alt.Scale(type="utc", nice=True),
                axis=alt.Axis(format=form, tickCount=8, labelFlush=True),
            ),
            y=alt.Y(f"{value}:Q", title=title, axis=axis, scale=scale),
            color=_color(series, order),
            strokeDash=dash,
        )
        .properties(width="container", height=240)
    )
    return chart


def draw_bars(
    rows: Sequence[Row],
    label: str,
    value: str,
    title: str,
    series: str | None = None,
    unit: Format = Format.NUMBER,
    *,
    is_stacked: bool = False,
) -> alt.Chart:
    """Return horizontal bars in the order of the rows; several series of a label are beside each other, or stacked."""
    labels = list(dict.fromkeys(to_chart_value(row[label]) for row in rows))
    order = rank_series(rows, series, value) if series else []
    axis = _byte_axis(rows, label, value) if unit is Format.BYTES else _count_axis(5)
    names = dict.fromkeys(filter(None, (label, series)))
    # The formatted values of a tooltip contain their unit, so the tooltip's title does not name one.
    tooltip = "time" if unit is Format.SECONDS else title
    chart = _chart(rows, {**{name: (name, Format.TEXT) for name in names}, value: (tooltip, unit)})
    encoded = chart.mark_bar().encode(
        y=alt.Y(f"{label}:N", sort=labels, title=None, axis=alt.Axis(labelOverlap=False)),
        x=alt.X(f"{value}:Q", title=title, axis=axis),
        color=_color(series, order) if series else alt.value(SERIES[0]),
    )
    if series and not is_stacked:
        encoded = encoded.encode(yOffset=alt.YOffset(f"{series}:N", sort=order))
    height = _BAR_HEIGHT * len(labels) * (1.6 if len(order) > 1 and not is_stacked else 1) + 20
    sized: alt.Chart = encoded.properties(width="container", height=height)
    return sized


def to_spec(chart: alt.Chart, description: str) -> dict[str, Any]:
    """Return the Vega-Lite specification of ``chart``, with the text that screen readers read."""
    spec: dict[str, Any] = chart.properties(description=description).to_dict()
    return spec | {"config": dict(CONFIG)}


def draw_hourly_delays(rows: Sequence[Row], series: str) -> alt.Chart:
    """Return a line for each series of the 95th percentiles (``p95_ms``) by ``hour``."""
    return draw_lines(rows, "hour", series, "p95_ms", "delay", timedelta(hours=1), is_duration=True)


def rank_series(rows: Iterable[Row], series: str, value: str) -> list[str]:
    """Return at most ``MAX_SERIES`` series, ordered by descending total; the series of ``OTHERS`` are last."""
    totals: dict[str, float] = {}
    for row in rows:
        name = to_chart_value(row[series])
        totals[name] = totals.get(name, 0) + (row[value] or 0)
    return sorted(totals, key=lambda name: (name in OTHERS, -totals[name], name))[:MAX_SERIES]


def _find_gaps(rows: Sequence[Row], at: str, series: str, step: timedelta) -> list[dict[str, Any]]:
    """One row without a value for each gap of a series: series and time."""
    times: dict[Any, list[Any]] = {}
    for row in rows:
        times.setdefault(row[series], []).append(row[at])
    return [
        {series: name, at: earlier + step}
        for name, moments in times.items()
        for earlier, later in pairwise(sorted(moments))
        if later - earlier > step
    ]


def _duration_axis(rows: Sequence[Row], value: str) -> tuple[alt.Axis, alt.Scale]:
    """An axis from zero with about five ticks at whole multiples of a unit of time, and its scale."""
    values = [row[value] for row in rows if row[value] is not None]
    least, greatest = min([0, *values]), max([1, *values])
    name, unit, step = next(
        (name, unit, step)
        for name, (unit, steps) in _DURATION_UNITS.items()
        for step in steps
        if step * unit * 4 >= greatest - least
    )
    ticks = [step * unit * number for number in range(floor(least / step / unit), ceil(greatest / step / unit) + 1)]
    return alt.Axis(labelExpr=f"format(datum.value / {unit}, ',') + ' {name}'", values=ticks), alt.Scale(
        domain=[ticks[0], ticks[-1]]
    )


def _byte_axis(rows: Sequence[Row], label: str, value: str) -> alt.Axis:
    """An axis with about five ticks at whole multiples of a binary unit."""
    totals: dict[str, float] = {}
    for row in rows:
        totals[row[label]] = totals.get(row[label], 0) + (row[value] or 0)
    greatest = max(totals.values(), default=0)
    unit = 1024 ** max(0, min(4, int(log(max(greatest, 1), 1024))))
    step = next(step for step in _STEPS if step * unit * 5 >= greatest)
    return alt.Axis(labelExpr=_BYTES_AXIS, values=[step * unit * number for number in range(7)])


def _count_axis(ticks: int) -> alt.Axis:
    return alt.Axis(labelExpr="format(datum.value, datum.value < 10000 ? ',' : '~s')", tickCount=ticks, tickMinStep=1)


def _chart(rows: Sequence[Row], shown: Mapping[str, tuple[str, Format]]) -> alt.Chart:
    """Return a chart whose tooltips contain the columns ``shown``, which has title and format by column."""
    formats = {f"shown_{name}": (name, unit) for name, (_, unit) in shown.items() if unit is not Format.TEXT}
    values = [
        {name: to_chart_value(value) for name, value in row.items()}
        | {field: format_value(row[name], unit) for field, (name, unit) in formats.items()}
        for row in rows
    ]
    tooltips = [
        alt.Tooltip(
            f"{name if unit is Format.TEXT else f'shown_{name}'}:N",
            title=title.replace("_", " ") if title == name else title,
        )
        for name, (title, unit) in shown.items()
    ]
    chart: alt.Chart = alt.Chart(alt.InlineData(values=values)).encode(tooltip=tooltips)
    return chart


def _color(series: str, order: Sequence[str]) -> alt.Color:
    colors = [_OWN_COLORS.get(name, color) for name, color in zip(order, SERIES, strict=False)]
    return alt.Color(f"{series}:N", sort=list(order), scale=alt.Scale(domain=list(order), range=colors))
