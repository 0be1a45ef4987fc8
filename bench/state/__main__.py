"""Measure the task ``resolve_state`` on synthetic state groups, without Synapse, and write ``docs/bench-state.md``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import spark_runs
from bench.machine import describe_machine
from bench.meter import Cost, Meter, server_pid
from bench.report import DOCS, Folder, Table, write_page
from bench.statistics import slope
from bench.worker_process import WorkerProcess
from synapse_lakehouse.config.settings import Settings

GROUPS: Final = 5_000_000
SIZES: Final = (0.01, 0.05, 0.2, 1.0)
INCREMENT: Final = 0.001
"""New groups of the second run, as a share of the groups of the first run."""


@dataclass(frozen=True)
class StateRun:
    """One run of the task: the rows of ``state_groups_state``, the written bytes, and the cost."""

    name: str
    groups: int
    rows: int
    written: int
    cost: Cost


def main(
    scale: Annotated[float, typer.Option(help="1: up to 5M groups with 100M rows")] = 1.0, folder: Folder = DOCS
) -> None:
    """Resolve 50,000 to 5 million groups (times the scale): first all groups, then 0.1% new groups."""
    machine = describe_machine()
    home = Settings().lakehouse_home / "bench" / "state"
    pairs = [measure_state(home, int(scale * size * GROUPS)) for size in SIZES]
    columns = ("groups", "rows", "run", "seconds", "CPU seconds", "MB written", "Python's peak memory, MB")
    rows = [
        (run.groups, run.rows, run.name, run.cost.wall, run.cost.cpu, run.written / 1e6, run.cost.memory / 1e6)
        for pair in pairs
        for run in pair
    ]
    ratios = [
        ("slope of all rooms", slope([(run.rows, run.cost.wall) for run, _ in pairs])),
        ("seconds, 0.1% new : all", pairs[-1][1].cost.wall / pairs[-1][0].cost.wall),
        ("bytes written, 0.1% new : all", pairs[-1][1].written / pairs[-1][0].written),
    ]
    results = Table("Resolving room state", columns, rows)
    write_page("bench-state.md", folder, machine, results, Table("Ratios", ("ratio", "value"), ratios))


def measure_state(home: Path, groups: int) -> tuple[StateRun, StateRun]:
    """Create groups in a new lake below ``home``, and measure a full run and an incremental run."""
    runs = []
    with (
        spark_runs.new_lake(home) as (settings, _),
        WorkerProcess("bench.state.state_lake:StateLake", settings) as worker,
    ):
        for name, new_groups in (("all rooms", groups), ("0.1% new groups", max(int(INCREMENT * groups), 1))):
            rows = worker.call("add_groups", new_groups)
            with Meter(worker.pid, server_pid(home / "postgres")) as meter:
                worker.call("resolve")
            runs.append(StateRun(name, groups, rows, worker.call("count_written_bytes"), meter.cost))
            typer.echo(runs[-1])
            worker.call("publish")
    return runs[0], runs[1]


if __name__ == "__main__":
    typer.run(main)
