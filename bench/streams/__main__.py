"""Measure the task ``measure_streams`` on synthetic IDs, without Synapse, and write ``docs/bench-streams.md``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import spark_runs
from bench.machine import describe_machine
from bench.meter import Cost, Meter, server_pid
from bench.report import DOCS, Folder, Table, write_page
from bench.worker_process import WorkerProcess
from synapse_lakehouse.config.settings import Settings

IDS: Final = 100_000_000
SIZES: Final = (0.01, 0.1, 1.0)
INCREMENT: Final = 0.001
"""New IDs of the second run, as a share of the IDs of the first run."""


@dataclass(frozen=True)
class StreamRun:
    """One run of the task: rows in bronze, IDs and gaps that it measured, and its cost."""

    name: str
    rows: int
    ids: int
    gaps: int
    cost: Cost


def main(scale: Annotated[float, typer.Option(help="1: up to 100M IDs")] = 1.0, folder: Folder = DOCS) -> None:
    """Measure streams of 1, 10 and 100 million IDs (times the scale): first all IDs, then 0.1% new IDs."""
    machine = describe_machine()
    home = Settings().lakehouse_home / "bench" / "streams"
    runs = [run for size in SIZES for run in measure_streams(home, int(scale * size * IDS))]
    columns = ("rows in bronze", "run", "IDs", "gaps", "seconds", "CPU seconds", "memory, MB")
    rows = [(run.rows, run.name, run.ids, run.gaps, run.cost.wall, run.cost.cpu, run.cost.memory / 1e6) for run in runs]
    write_page("bench-streams.md", folder, machine, Table("Measuring streams", columns, rows))


def measure_streams(home: Path, ids: int) -> list[StreamRun]:
    """Create about ``ids`` IDs in a new lake below ``home``, and measure a full run and an incremental run."""
    runs = []
    with (
        spark_runs.new_lake(home) as (settings, _),
        WorkerProcess("bench.streams.stream_lake:StreamLake", settings) as worker,
    ):
        for name, new_ids in (("all IDs", ids), ("0.1% new IDs", int(INCREMENT * ids))):
            rows = worker.call("add_ids", new_ids)
            with Meter(worker.pid, server_pid(home / "postgres"), jvm=True) as meter:
                worker.call("measure")
            measured_ids, gaps = worker.call("count_ids_and_gaps")
            runs.append(StreamRun(name, rows, measured_ids, gaps, meter.cost))
            typer.echo(runs[-1])
            worker.call("publish")
    return runs


if __name__ == "__main__":
    typer.run(main)
