"""Measure increments: runs after rows were added to a copied table or changed in it."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import typer

from bench.copy import lakes
from bench.copy.full_copies import CLASSES, LAKEHOUSE, metered_call
from bench.copy.source_database import SourceDatabase
from bench.meter import Cost
from bench.report import Cell, Table
from bench.statistics import spread
from bench.worker_process import WorkerProcess

CHANGED_ROWS: Final = 10_000
CHANGED_TABLES: Final = ("events", "event_json")
NO_CHANGE: Final = "nothing changed"
Changes = Mapping[str, Callable[[int], None]]
"""Name of the change → function that changes the source. Its argument is the number of the repetition."""

_STATISTICS_DELAY: Final = 1.2
"""Seconds after the end of a session until other sessions see its statistics."""


@dataclass(frozen=True)
class Increment:
    """One run after a change of a table with ``table_rows`` rows.

    ``cost`` covers the run from the PostgreSQL snapshot to the ledger, without ``publish_seconds``. PostgreSQL read
    ``rows_scanned``, wrote ``temp_files``, and sent ``rows_sent``.
    """

    table: str
    table_rows: int
    change: str
    cost: Cost
    publish_seconds: float
    rows_sent: int
    rows_scanned: int
    temp_files: int


def measure_increments(source: SourceDatabase, home: Path, rounds: int) -> list[Increment]:
    """Measure each change ``rounds`` times, after a full copy and a warm-up.

    Rows are added at the table's end, and rows are changed. Then VACUUM frees the old row versions, and rows are added
    in the freed space.
    """
    increments: list[Increment] = []
    with WorkerProcess(CLASSES[LAKEHOUSE], lakes.create_lake(home, "increments", source)) as worker:
        for table in CHANGED_TABLES:
            worker.call("copy", table)
            worker.call("publish")
            add, change = (partial(method, table, CHANGED_ROWS) for method in (source.add, source.change))
            count = f"{CHANGED_ROWS:,}"
            changes: Changes = {NO_CHANGE: lambda _: None, f"{count} added": add, f"{count} changed": change}
            increments += _measure_changes(worker, source, table, changes, range(rounds + 1))
            source.vacuum(table)
            changes = {f"{count} added in freed space": add}
            increments += _measure_changes(worker, source, table, changes, range(rounds + 1, 2 * (rounds + 1)))
            worker.call("clear")
    return increments


def table(increments: Sequence[Increment]) -> Table:
    """Return the table of increments."""
    rows: list[list[Cell]] = []
    groups: dict[tuple[str, str], list[Increment]] = defaultdict(list)
    for increment in increments:
        groups[increment.table, increment.change].append(increment)
    for (name, change), runs in groups.items():
        rows.append(
            [
                f"`{name}`, {runs[0].table_rows:,} rows", change,
                *(spread([getattr(run.cost, field) for run in runs]) for field in ("wall", "cpu", "source_cpu")),
                int(median(run.rows_sent for run in runs)), int(median(run.rows_scanned for run in runs)),
                max(run.temp_files for run in runs), spread([run.publish_seconds for run in runs]),
            ]
        )  # fmt: skip
    columns = (
        "table", "change", "seconds", "CPU seconds", "PostgreSQL CPU seconds", "rows sent", "rows scanned",
        "temp files", "publishing, seconds",
    )  # fmt: skip
    return Table("Increments", columns, rows)


def _measure_changes(
    worker: WorkerProcess, source: SourceDatabase, table: str, changes: Changes, numbers: range
) -> Iterator[Increment]:
    for number in numbers:
        for name, change in changes.items():
            change(number)
            with _count_scans(source, table) as counters:
                result, cost = metered_call(worker, source, "copy", table)
            publish_seconds = worker.call("publish")
            typer.echo(f"{table}: {name}: {cost.wall:.2f} s, {result.rows:,} rows sent")
            if number != numbers[0]:
                yield Increment(table, source.events, name, cost, publish_seconds, result.rows, **counters)


@contextmanager
def _count_scans(source: SourceDatabase, table: str) -> Iterator[dict[str, int]]:
    time.sleep(_STATISTICS_DELAY)
    before = _read_counters(source, table)
    counters: dict[str, int] = {}
    yield counters
    time.sleep(_STATISTICS_DELAY)
    counters |= {name: value - before[name] for name, value in _read_counters(source, table).items()}


def _read_counters(source: SourceDatabase, table: str) -> dict[str, int]:
    with source.connect() as connection:
        row = connection.execute(
            "select seq_tup_read + coalesce(idx_tup_fetch, 0), temp_files from pg_stat_user_tables, pg_stat_database"
            " where relname = %s and datname = current_database()",
            [table],
        ).fetchone()
    assert row is not None
    return {"rows_scanned": int(row[0]), "temp_files": int(row[1])}
