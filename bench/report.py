"""The report, in Markdown, from the figures alone."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import TypeVar

from bench.results import CONNECTORX, CONTENDERS, JDBC, LIMIT, OURS, Increment, Results, Stage
from bench.statistics import Spread, by_round, cost_a_row, rate, ratio, spread

_T = TypeVar("_T", Stage, Increment)

_HEAD = """\
# How fast is the copy?

`make bench-copy` writes this page. It fills a PostgreSQL database of Synapse's schema, copies its three largest tables
in several ways, in turns, and measures every process that takes part. Figures are medians, with the smallest and the
largest in brackets; ratios compare copies of the same round.

![Rows a second of each way to copy, and what a row costs](bench.svg)
"""

_WAYS = f"""\
- **{OURS}**: one run as the main job makes it, in a warm Spark app: preflight, exported snapshot, counts, copy, commit
  on the run's branch, ledger.
- **{JDBC}**: a warm Spark that reads four partitions side by side (fetch size 10,000) and creates an Iceberg table.
- **{CONNECTORX}**: four threads into one stream of Arrow batches, one Parquet file.
- **{LIMIT}**: one `COPY … TO STDOUT (FORMAT binary)` that psql throws away; no copy over one connection can be faster.

The limit sends columns as they are stored. The others send the same SELECT, which cuts private fields out of JSON, the
peers in four ranges of pages, and all write zstd at the same level.
CPU is user and system time of all processes of a way, JVM included, without PostgreSQL's, which stand beside it. Memory
is the largest proportional set size of all of a way's processes but the JVM.
"""


def write(results: Results) -> str:
    """The whole page."""
    return "\n".join(
        [
            _HEAD,
            "## What was measured on\n",
            *markdown(("", ""), results.machine.items()),
            "",
            *markdown(
                ("table", "rows", "bytes a row in PostgreSQL"),
                [
                    (name, f"{rows:,}", f"{results.table_bytes[name] / rows:,.0f}")
                    for name, rows in results.rows.items()
                ],
            ),
            "",
            f"Scale {results.scale:g}; scale 1 is 2 million rows in `events` and `event_json`, about 10 million in "
            "`state_groups_state`.\n",
            "## Full copies\n",
            _WAYS,
            *_full(results),
            "",
            "## Goals\n",
            *_goals(results),
            "",
            "## What bounds it\n",
            *_stages(results),
            "",
            "## Increments\n",
            *_increments(results),
            "",
        ]
    )


def _full(results: Results) -> Iterator[str]:
    rounds = len({one.round for one in results.samples})
    yield f"{rounds} rounds. Rows a second of wall time:\n"
    yield from markdown(
        ("", *results.rows, "all three"),
        [(way, *(number(rate(results.samples, way, table)) for table in [*results.rows, None])) for way in CONTENDERS],
    )
    yield "\nAll three tables, one after the other:\n"
    yield from markdown(
        ("", "seconds", "CPU seconds", "PostgreSQL's CPU seconds", "memory, MB", "files, MB"),
        [
            (
                way,
                *(
                    decimal(
                        spread(
                            [sum(getattr(one.cost, what) for one in turn) for turn in by_round(results.samples, way)]
                        )
                    )
                    for what in ("wall", "cpu", "source_cpu")
                ),
                number(spread([max(one.cost.memory for one in turn) / 1e6 for turn in by_round(results.samples, way)])),
                f"{sum(one.bytes for one in by_round(results.samples, way)[0]) / 1e6:,.0f}",
            )
            for way in CONTENDERS
        ],
    )


def _goals(results: Results) -> Iterator[str]:
    samples = results.samples
    wall, cpu = (ratio(samples, OURS, JDBC, what) for what in (lambda one: one.cost.wall, lambda one: one.cost.cpu))
    limit = ratio(samples, OURS, LIMIT, lambda one: one.cost.wall)
    peer = ratio(samples, OURS, CONNECTORX, lambda one: one.cost.wall)
    memory = max(one.cost.memory for one in samples if one.contender == OURS) / 1e6
    read = max(one.rows / results.rows[one.table] for one in samples if one.contender == OURS)
    rows = [
        (f"times as fast as {JDBC}", "≥ 1.5", decimal(wall), met(wall.median >= 1.5)),
        (f"times less CPU than {JDBC}", "≥ 1.5", decimal(cpu), met(cpu.median >= 1.5)),
        (f"of the speed of {LIMIT}", "≥ 0.5", decimal(limit), met(limit.median >= 0.5)),
        (f"times as fast as {CONNECTORX}", "", decimal(peer), ""),
        ("MB outside the JVM, at most", "≤ 600", f"{memory:,.0f}", met(memory <= 600)),
        ("rows sent for each row of a full copy", "1.00", f"{read:.2f}", met(read <= 1.0)),
    ]
    for table, runs in _by(results.increments, "table"):
        for change, repeats in _by(runs, "change"):
            if change != "nothing":
                wall = spread([one.wall for one in repeats])
                first = repeats[0]
                what = f"s for {first.rows:,} rows {change} in {first.table_rows:,} of `{table}`"
                rows.append((what, "≤ 0.5", decimal(wall), met(wall.median <= 0.5)))
    yield from markdown(("", "goal", "measured", ""), rows)


def _stages(results: Results) -> Iterator[str]:
    yield (
        "Each stage alone, on one thread, in CPU microseconds a row; `source sends bare columns` is without the "
        "projections that keep private fields back. The last line is the whole copy: PostgreSQL's share and ours, and "
        "how busy both kept the machine's cores: what is missing to 100% is waiting, or the work of others.\n"
    )
    cores = int(results.machine["Processor"].split()[0])
    rows = []
    for table, stages in _by(results.stages, "table"):
        for name, repeats in _by(stages, "name"):
            rows.append(
                (f"`{table}`", name, _cpu_a_row(repeats, "source_cpu"), _cpu_a_row(repeats, "cpu"), _speed(repeats), "")
            )
        costs = [one for one in results.samples if one.contender == OURS and one.table == table]
        busy = median((one.cost.cpu + one.cost.source_cpu) / one.cost.wall / cores for one in costs)
        rows.append(
            (
                f"`{table}`",
                "**the whole copy**",
                f"{median(one.cost.source_cpu / one.rows for one in costs) * 1e6:.2f}",
                f"{median(one.cost.cpu / one.rows for one in costs) * 1e6:.2f}",
                number(rate(results.samples, OURS, table)),
                f"{busy:.0%}",
            )
        )
    yield from markdown(("table", "stage", "PostgreSQL, µs", "ours, µs", "rows/s", "cores busy"), rows)
    yield ""
    for table in results.rows:
        yield f"- `{table}`: {_bound(table, results)}"
    yield (
        "\nEverything else is what no stage alone explains: counting rows, Spark's driver and workers, the commit and "
        "the ledger, and what the stages cost more side by side."
    )


def _bound(table: str, results: Results) -> str:
    costs = cost_a_row(results, table)
    whole = sum(costs.values())
    largest = max(costs, key=lambda name: costs[name])
    shares = ", ".join(f"{name} {value / whole:.0%}" for name, value in costs.items())
    return f"{whole:.1f} µs of CPU a row, bounded by {largest} ({shares})."


def _increments(results: Results) -> Iterator[str]:
    yield (
        "One run in a warm app after a full copy was published, from the preflight to the ledger. PostgreSQL puts rows "
        "at a table's end, or where VACUUM freed space for them all over it. Rows sent include what is sent to compare "
        "keys; rows looked at are those that PostgreSQL read to find them.\n"
    )
    rows = []
    for table, runs in _by(results.increments, "table"):
        for change, repeats in _by(runs, "change"):
            rows.append(
                (
                    f"`{table}`, {repeats[0].table_rows:,} rows",
                    f"{repeats[0].rows:,} {change}" if repeats[0].rows else "nothing changed",
                    *(
                        decimal(spread([getattr(one, what) for one in repeats]))
                        for what in ("wall", "cpu", "source_cpu")
                    ),
                    f"{median(one.rows_read for one in repeats):,.0f}",
                    f"{median(one.rows_scanned for one in repeats):,.0f}",
                    str(max(one.temp_files for one in repeats)),
                    decimal(spread([one.publishing for one in repeats])),
                )
            )
    yield from markdown(
        (
            "table", "change", "seconds", "CPU seconds", "PostgreSQL's CPU seconds", "rows sent", "rows looked at",
            "temp files", "publishing, seconds",
        ),
        rows,
    )  # fmt: skip


def _by(items: Sequence[_T], field: str) -> Iterator[tuple[str, list[_T]]]:
    ordered = sorted(items, key=lambda one: [getattr(other, field) for other in items].index(getattr(one, field)))
    for value, group in groupby(ordered, key=lambda one: str(getattr(one, field))):
        yield value, list(group)


def _cpu_a_row(stages: Sequence[Stage], what: str) -> str:
    value = median(getattr(one, what) / one.rows for one in stages) * 1e6
    return f"{value:.2f}" if value >= 0.005 else ""


def _speed(stages: Sequence[Stage]) -> str:
    return number(spread([one.rows / one.wall for one in stages]))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def number(value: Spread) -> str:
    """A large one, with its range."""
    return f"{value.median:,.0f} ({value.low:,.0f} to {value.high:,.0f})"


def decimal(value: Spread) -> str:
    """A small one, with its range."""
    return f"{value.median:.2f} ({value.low:.2f} to {value.high:.2f})"


def met(reached: bool) -> str:
    """What to say of a goal."""
    return "reached" if reached else "missed"
