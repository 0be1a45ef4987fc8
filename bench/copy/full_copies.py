"""Measure full copies: every contender copies every table, in rounds."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from bench.copy import lakes
from bench.copy.contenders import CopyResult
from bench.copy.source_database import TABLES, SourceDatabase
from bench.meter import Cost, Meter
from bench.report import Cell, Table
from bench.statistics import Spread, ratio, spread
from bench.worker_process import WorkerProcess
from synapse_lakehouse.config.settings import Settings

LAKEHOUSE, JDBC, CONNECTORX, COPY = (
    "synapse-lakehouse", "Spark JDBC → Iceberg", "connectorx → Parquet", "COPY to /dev/null"
)  # fmt: skip
CLASSES: Final = {
    LAKEHOUSE: "bench.copy.contenders.synapse_lakehouse:LakehouseCopy",
    JDBC: "bench.copy.contenders.spark_jdbc:SparkJdbc",
    CONNECTORX: "bench.copy.contenders.connectorx_parquet:Connectorx",
    COPY: "bench.copy.contenders.copy_limit:CopyLimit",
}
_WARM_UP_TABLE: Final = "events"


@dataclass(frozen=True)
class FullCopy:
    """One copy of a table by a contender."""

    round: int
    contender: str
    table: str
    result: CopyResult
    cost: Cost


def measure_full_copies(source: SourceDatabase, home: Path, rounds: int) -> list[FullCopy]:
    """Copy all tables with all contenders, ``rounds`` times after a warm-up. The order rotates between rounds."""
    arguments: dict[str, list[Settings | Path]] = {
        LAKEHOUSE: [lakes.create_lake(home, "lakehouse", source)],
        JDBC: [lakes.create_lake(home, "jdbc", source)],
        CONNECTORX: [lakes.source_settings(source), home / "connectorx"],
        COPY: [lakes.source_settings(source)],
    }
    contenders, copies = list(CLASSES), []
    with ExitStack() as stack:
        workers = {name: stack.enter_context(WorkerProcess(CLASSES[name], *arguments[name])) for name in contenders}
        for number in range(rounds + 1):
            first = number % len(contenders)
            for contender in contenders[first:] + contenders[:first]:
                for table in TABLES if number else [_WARM_UP_TABLE]:
                    result, cost = metered_call(workers[contender], source, "copy", table)
                    workers[contender].call("clear")
                    typer.echo(f"round {number}: {contender}, {table}: {result.rows / cost.wall:,.0f} rows/s")
                    if number:
                        copies.append(FullCopy(number, contender, table, result, cost))
    return copies


def metered_call(worker: WorkerProcess, source: SourceDatabase, method: str, table: str) -> tuple[CopyResult, Cost]:
    """Call a method that copies ``table``, and return its result and cost."""
    with Meter(worker.pid, source.pid) as meter:
        result = worker.call(method, table)
    # The lakehouse's result is in its ledger. Reading it is not part of the copy.
    return result or worker.call("read_result"), meter.cost


def select_rounds(copies: Sequence[FullCopy], contender: str, table: str | None = None) -> list[list[FullCopy]]:
    """Return a contender's copies of one table or of all, one list for each round."""
    selected = [copy for copy in copies if copy.contender == contender and table in (None, copy.table)]
    return [[copy for copy in selected if copy.round == number] for number in sorted({copy.round for copy in selected})]


def row_rate(copies: Sequence[FullCopy], contender: str, table: str | None = None) -> Spread:
    """Return rows per second of one table, or of all tables one after the other."""
    return spread(
        [
            sum(copy.result.rows for copy in group) / sum(copy.cost.wall for copy in group)
            for group in select_rounds(copies, contender, table)
        ]
    )


def total_cost(copies: Sequence[FullCopy], contender: str, field: str) -> list[float]:
    """Return a field of the cost of all tables together, for each round."""
    return [sum(getattr(copy.cost, field) for copy in group) for group in select_rounds(copies, contender)]


def tables(copies: Sequence[FullCopy]) -> list[Table]:
    """Return the tables of speeds, costs and ratios."""
    costs: list[list[Cell]] = []
    for name in CLASSES:
        groups = select_rounds(copies, name)
        spreads = (spread(total_cost(copies, name, field)) for field in ("wall", "cpu", "source_cpu"))
        memory = spread([max(copy.cost.memory for copy in group) / 1e6 for group in groups])
        size, rows = (sum(getattr(copy.result, field) for copy in groups[0]) for field in ("bytes", "rows"))
        costs.append([name, *spreads, memory, size / 1e6, rows])
    lakehouse_costs = {field: total_cost(copies, LAKEHOUSE, field) for field in ("wall", "cpu")}
    ratios: list[list[Cell]] = [
        [peer, *(ratio(total_cost(copies, peer, field), cost) for field, cost in lakehouse_costs.items())]
        for peer in (JDBC, CONNECTORX, COPY)
    ]
    return [
        Table(
            "Full copies: rows per second",
            ("contender", *TABLES, "all three"),
            [[name, *(row_rate(copies, name, table) for table in (*TABLES, None))] for name in CLASSES],
        ),
        Table(
            "Full copies: all three tables, one after the other",
            ("contender", "seconds", "CPU seconds", "PostgreSQL CPU seconds", "memory, MB", "files, MB", "rows"),
            costs,
        ),
        Table(f"Full copies: peer divided by {LAKEHOUSE}", ("peer", "wall time", "CPU time"), ratios),
    ]
