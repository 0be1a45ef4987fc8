"""Measure each stage of the lakehouse's copy alone on one thread, to find the bottleneck."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import pyarrow as pa
import typer
from adbc_driver_postgresql import dbapi

from bench.copy import lakes, select_statements
from bench.copy.contenders import CopyResult
from bench.copy.contenders.copy_limit import copy_to_null
from bench.copy.full_copies import LAKEHOUSE, FullCopy, metered_call
from bench.copy.source_database import TABLES, SourceDatabase
from bench.meter import Cost
from bench.report import Cell, Table
from bench.statistics import spread
from bench.worker_process import WorkerProcess
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables as iceberg_tables
from synapse_lakehouse.iceberg.write.commits import get_parquet_schema
from synapse_lakehouse.postgres.connection import build_conninfo
from synapse_lakehouse.postgres.rows import copy_to_parquet, snapshot_reader
from synapse_lakehouse.postgres.rows.page_ranges import PAGES_PER_CHUNK
from synapse_lakehouse.postgres.rows.select_sql import build_select

STAGES: Final = {
    "send_columns": "PostgreSQL sends stored columns",
    "send_select": "PostgreSQL sends the SELECT",
    "decode": "PostgreSQL sends the SELECT, ADBC decodes it",
    "encode": "Parquet is encoded and verified",
}


@dataclass(frozen=True)
class StageRun:
    """One measurement of a stage."""

    table: str
    stage: str
    rows: int
    cost: Cost


class StageRunner:
    """Run one stage for one table, without Spark."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self._batches: list[pa.RecordBatch] = []

    def send_columns(self, table: str) -> CopyResult:
        """Send the stored columns."""
        return copy_to_null(self.settings, select_statements.stored_columns(table))

    def send_select(self, table: str) -> CopyResult:
        """Send the lakehouse's SELECT."""
        return copy_to_null(self.settings, build_select(lakes.select_tables(table).table(table)).as_string())

    def decode(self, table: str) -> CopyResult:
        """Decode the lakehouse's SELECT to Arrow batches, and discard them."""
        with self._execute(build_select(lakes.select_tables(table).table(table)).as_string()) as cursor:
            rows = size = 0
            for batch in cursor.fetch_record_batch():
                rows, size = rows + batch.num_rows, size + batch.nbytes
        return CopyResult(rows, size)

    def load(self, table: str) -> None:
        """Read the table's first chunk into memory, for :meth:`encode`."""
        declared = lakes.select_tables(table).table(table)
        with self._execute(build_select(declared, (0, PAGES_PER_CHUNK)).as_string()) as cursor:
            self._batches = list(cursor.fetch_record_batch())
        catalog, columns = open_catalog(self.settings), [column.name for column in declared.columns]
        iceberg_tables.ensure_tables(catalog, lakes.select_tables())
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._chunk = copy_to_parquet.ReadChunk(
            conninfo="",
            snapshot="",
            statement="",
            schema=get_parquet_schema(catalog.load_table(f"bronze.{table}"), columns),
            unique_columns=(*declared.primary_key, "json"),
            folder=str(self.folder),
            io_properties={},
        )

    def encode(self, _: str) -> CopyResult:
        """Write the loaded batches as Parquet."""
        reader = pa.RecordBatchReader.from_batches(self._batches[0].schema, self._batches)
        written = copy_to_parquet._write_chunk(self._chunk, reader)
        return CopyResult(written.rows, written.bytes)

    def close(self) -> None:
        """Do nothing."""

    def _execute(self, statement: str) -> dbapi.Cursor:
        cursor = dbapi.connect(build_conninfo(self.settings)).cursor()
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(snapshot_reader.BATCH_BYTES)})
        cursor.execute(statement)
        return cursor


def measure_stages(source: SourceDatabase, home: Path, rounds: int) -> list[StageRun]:
    """Run every stage of every table, ``rounds`` times."""
    runs = []
    settings = lakes.create_lake(home, "stages", source)
    with WorkerProcess("bench.copy.stages:StageRunner", settings, home / "stages" / "encoded") as worker:
        for table in TABLES:
            worker.call("load", table)
            for _ in range(rounds):
                for stage in STAGES:
                    result, cost = metered_call(worker, source, stage, table)
                    typer.echo(f"{table}: {STAGES[stage]}: {result.rows / cost.wall:,.0f} rows/s")
                    runs.append(StageRun(table, stage, result.rows, cost))
    return runs


def cost_per_row(runs: Sequence[StageRun], copies: Sequence[FullCopy], table: str) -> dict[str, float]:
    """Return CPU microseconds per row of the full copy of ``table``, by stage. The last entry is the remainder."""
    full_copies = _copies_as_runs(copies, table)
    parts = {
        "PostgreSQL": _per_row(_select(runs, table, "send_select"), "source_cpu"),
        "ADBC": _per_row(_select(runs, table, "decode"), "cpu"),
        "Parquet": _per_row(_select(runs, table, "encode"), "cpu"),
    }
    whole = median((run.cost.cpu + run.cost.source_cpu) / run.rows for run in full_copies) * 1e6
    return parts | {"everything else": max(whole - sum(parts.values()), 0.0)}


def tables(runs: Sequence[StageRun], copies: Sequence[FullCopy], cores: int) -> list[Table]:
    """Return the table of stages, and the table of their shares in the CPU time of the full copy."""
    rows: list[list[Cell]] = []
    shares: list[list[Cell]] = []
    for table in TABLES:
        groups = {title: _select(runs, table, stage) for stage, title in STAGES.items()}
        groups["full copy"] = _copies_as_runs(copies, table)
        for title, group in groups.items():
            busy = median((run.cost.cpu + run.cost.source_cpu) / run.cost.wall / cores for run in group)
            cpu = (_per_row(group, field) for field in ("source_cpu", "cpu"))
            rows.append([f"`{table}`", title, *cpu, spread([run.rows / run.cost.wall for run in group]), f"{busy:.0%}"])
        costs = cost_per_row(runs, copies, table)
        whole = sum(costs.values())
        shares.append([f"`{table}`", whole, *(f"{cost / whole:.0%}" for cost in costs.values())])
    columns = ("table", "stage", "PostgreSQL, µs per row", "lakehouse, µs per row", "rows per second", "cores busy")
    share_columns = ("table", "CPU, µs per row", "PostgreSQL", "ADBC", "Parquet", "everything else")
    return [Table("Stages of the copy", columns, rows), Table("CPU time of the full copy", share_columns, shares)]


def _select(runs: Sequence[StageRun], table: str, stage: str) -> list[StageRun]:
    return [run for run in runs if (run.table, run.stage) == (table, stage)]


def _copies_as_runs(copies: Sequence[FullCopy], table: str) -> list[StageRun]:
    return [
        StageRun(table, "full copy", copy.result.rows, copy.cost)
        for copy in copies
        if (copy.table, copy.contender) == (table, LAKEHOUSE)
    ]


def _per_row(runs: Sequence[StageRun], field: str) -> float:
    return float(median(getattr(run.cost, field) / run.rows for run in runs)) * 1e6
