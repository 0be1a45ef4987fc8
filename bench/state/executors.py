"""Measure ``resolve_state`` on 1, 2 and 4 executors of one core, and write ``docs/bench-executors.md``."""

import os
import subprocess
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import spark_runs
from bench.machine import describe_machine
from bench.meter import Cost, Meter
from bench.report import DOCS, Folder, Table, write_page
from bench.state.__main__ import GROUPS
from bench.worker_process import WorkerProcess
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings

EXECUTORS: Final = (1, 2, 4)


def main(
    scale: Annotated[float, typer.Option(help="1: 5M groups with 100M rows")] = 1.0,
    memory: Annotated[int, typer.Option(help="heap of each executor in MB")] = 2048,
    folder: Folder = DOCS,
) -> None:
    """Resolve the state of all rooms on 1, 2 and 4 executors, each with one core and its own heap."""
    machine = describe_machine()
    home = Settings().lakehouse_home / "bench" / "executors"
    runs = [measure_executors(home, executors, memory, int(scale * GROUPS)) for executors in EXECUTORS]
    columns = ("executors", "rows", "seconds", "CPU seconds", "CPU µs for each row", "CPU, one executor = 1")
    results = [
        (executors, rows, cost.wall, cost.cpu, cost.cpu * 1e6 / rows, cost.cpu / runs[0][1].cpu)
        for executors, (rows, cost) in zip(EXECUTORS, runs, strict=True)
    ]
    write_page("bench-executors.md", folder, machine, Table("Resolving room state", columns, results))


def measure_executors(home: Path, executors: int, memory: int, groups: int) -> tuple[int, Cost]:
    """Create groups in a new lake below ``home``; return the rows, and the cost of a full run on ``executors``."""
    os.environ |= {"SPARK_MASTER": f"local-cluster[{executors},1,{memory}]", "SPARK_LOCAL_IP": "127.0.0.1"}
    properties = {"spark.executor.memory": f"{memory}m"}
    with spark_runs.new_lake(home) as (lake, _):
        settings = lake.model_copy(
            update={"lakehouse_spark_secret_file": _write_secret(home), "lakehouse_spark_properties": properties}
        )
        with WorkerProcess("bench.state.state_lake:StateLake", settings) as worker:
            rows = worker.call("add_groups", groups)
            with Meter(worker.pid) as meter:
                worker.call("resolve")
    typer.echo((executors, rows, meter.cost))
    return rows, meter.cost


def _write_secret(folder: Path) -> Path:
    file = folder / "spark.secret"
    file.touch(mode=0o600)
    file.write_bytes(subprocess.check_output([PROJECT_FOLDER / "docker" / "spark-secret.sh"]))
    return file


if __name__ == "__main__":
    typer.run(main)
