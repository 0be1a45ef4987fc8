"""The measurements: full copies side by side in rounds, stages alone, and increments."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench import lakes
from bench.contenders import Copied
from bench.meter import Cost, Meter
from bench.results import (
    BARE,
    CONNECTORX,
    CONTENDERS,
    DECODED,
    ENCODED,
    JDBC,
    LIMIT,
    OURS,
    SENT,
    Increment,
    Sample,
    Stage,
)
from bench.source import TABLES, Source
from bench.worker import Worker
from synapse_lakehouse.config.settings import Settings

Progress = Callable[[str], None]
Happens = Mapping[str, Callable[[int], None]]
"""What happens to the source for the so-manieth time, by what the report calls it."""

CHANGED_ROWS = 10_000
CHANGED_TABLES = ("events", "event_json")
_WARM_UP_TABLE = "events"
_CLASSES = {
    OURS: "bench.contenders.ours:Ours",
    JDBC: "bench.contenders.spark_jdbc:SparkJdbc",
    CONNECTORX: "bench.contenders.connectorx_parquet:Connectorx",
    LIMIT: "bench.contenders.copy_limit:CopyLimit",
}
_STAGES = {"bare": BARE, "sent": SENT, "decoded": DECODED, "encoded": ENCODED}
# A backend's statistics are there for others a moment after it ended.
_STATISTICS_SECONDS = 1.2


def full_copies(source: Source, home: Path, rounds: int, progress: Progress) -> Iterator[Sample]:
    """Every contender copies every table, ``rounds`` times, in turns whose order changes; none starts cold."""
    arguments: dict[str, list[Settings | Path]] = {
        OURS: [lakes.new(home, "ours", source)],
        JDBC: [lakes.new(home, "jdbc", source)],
        CONNECTORX: [lakes.settings(source), home / "connectorx"],
        LIMIT: [lakes.settings(source)],
    }
    with ExitStack() as stack:
        workers = {way: stack.enter_context(Worker(_CLASSES[way], *arguments[way])) for way in CONTENDERS}
        for number in range(rounds + 1):
            turn = number % len(CONTENDERS)
            for contender in CONTENDERS[turn:] + CONTENDERS[:turn]:
                worker = workers[contender]
                for table in TABLES if number else [_WARM_UP_TABLE]:
                    copied, cost = _metered(worker, source, "copy", table)
                    worker.call("clear")
                    progress(f"round {number} of {rounds}: {contender}, {table}: {copied.rows / cost.wall:,.0f} rows/s")
                    if number:
                        yield Sample(number, contender, table, copied.rows, copied.bytes, cost)


def stages(source: Source, home: Path, rounds: int, progress: Progress) -> Iterator[Stage]:
    """The stages of every table, each ``rounds`` times."""
    settings = lakes.new(home, "stages", source)
    with Worker("bench.stages:Stages", settings, home / "stages" / "encoded") as worker:
        for table in TABLES:
            worker.call("load", table)
            for _ in range(rounds):
                for method, name in _STAGES.items():
                    copied, cost = _metered(worker, source, method, table)
                    progress(f"{table}: {name}: {copied.rows / cost.wall:,.0f} rows/s")
                    yield Stage(table, name, copied.rows, copied.bytes, cost.wall, cost.cpu, cost.source_cpu)


def increments(source: Source, home: Path, rounds: int, progress: Progress) -> Iterator[Increment]:
    """After a full copy, ``rounds`` times: nothing changed, rows were added, rows were changed; then rows were added
    where older versions of those that were changed had been."""
    with Worker(_CLASSES[OURS], lakes.new(home, "increments", source)) as worker:
        for table in CHANGED_TABLES:
            worker.call("copy", table)
            worker.call("publish")
            add, change = (partial(one, table, CHANGED_ROWS) for one in (source.add, source.change))
            happens: Happens = {"nothing": lambda _: None, "added": add, "changed": change}
            yield from _changed(worker, source, table, happens, range(rounds + 1), progress)
            source.vacuum(table)
            more = range(rounds + 1, 2 * (rounds + 1))
            yield from _changed(worker, source, table, {"added in freed space": add}, more, progress)
            worker.call("clear")


def _changed(
    worker: Worker,
    source: Source,
    table: str,
    happens: Happens,
    numbers: range,
    progress: Progress,
) -> Iterator[Increment]:
    for number in numbers:
        for change, happen in happens.items():
            happen(number)
            with _watched(source, table) as seen:
                copied, cost = _metered(worker, source, "copy", table)
            publishing = worker.call("publish")
            progress(f"{table}: {change}: {cost.wall:.2f} s, {copied.rows:,} rows read")
            if number != numbers[0]:
                rows = 0 if change == "nothing" else CHANGED_ROWS
                yield Increment(
                    table,
                    source.events,
                    change,
                    rows,
                    cost.wall,
                    publishing,
                    cost.cpu,
                    cost.source_cpu,
                    copied.rows,
                    **seen,
                )


def _metered(worker: Worker, source: Source, method: str, table: str) -> tuple[Copied, Cost]:
    with Meter(worker.pid, source.pid) as meter:
        result = worker.call(method, table)
    assert meter.cost is not None
    # Looking up what a lake wrote down about a copy is not part of it.
    return result or worker.call("copied"), meter.cost


@contextmanager
def _watched(source: Source, table: str) -> Iterator[dict[str, int]]:
    time.sleep(_STATISTICS_SECONDS)
    before = _counters(source, table)
    seen: dict[str, int] = {}
    yield seen
    time.sleep(_STATISTICS_SECONDS)
    seen |= {name: value - before[name] for name, value in _counters(source, table).items()}


def _counters(source: Source, table: str) -> dict[str, int]:
    with source.connect() as connection:
        row = connection.execute(
            "select seq_tup_read + coalesce(idx_tup_fetch, 0), temp_files from pg_stat_user_tables, pg_stat_database"
            " where relname = %s and datname = current_database()",
            [table],
        ).fetchone()
    assert row is not None
    return {"rows_scanned": int(row[0]), "temp_files": int(row[1])}
