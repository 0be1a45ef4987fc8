"""Measure how long streams are measured, and in how much memory, and write ``docs/bench-streams.md``.

``python -m bench.streams`` needs neither Synapse nor its database: the ids are made, in a lake of their own.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import machine
from bench.meter import Cost, Meter, server_pid
from bench.report import markdown
from bench.worker import Worker
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.local.postgres import embedded_postgres

IDS: Final = 100_000_000
STEPS: Final = (0.01, 0.1, 1.0)
MORE: Final = 0.001
"""New ids of the run after the first one, as a share of those before."""
LARGE: Final = {"lakehouse_driver_memory": "2g", "lakehouse_driver_java_options": "-XX:+UseParallelGC"}
"""What operators of a large server set, with the default heap: the compiler and collector that take their time."""

_HEAD = """\
# What does measuring long streams cost?

`make bench-streams` writes this page. It makes the tables of bronze that back Synapse's streams, with ids only (no
Synapse is needed): a thousandth of the ids have no row, as their transactions failed; in half of the
streams, by their ids, a missing one means something and is looked for. Then it does what the task `measure_streams`
does: keys, ids, positions, safe bounds and the gaps of every stream, at first of all of them, then after 0.1% new ids,
which only add rows. Two of the 16 streams are not in it: their tables are counted inside Synapse's
database and never copied. One round for each size, with the default heap of a Spark driver
(`LAKEHOUSE_DRIVER_MEMORY=2g`) and `LAKEHOUSE_DRIVER_JAVA_OPTIONS=-XX:+UseParallelGC`.

Memory is the largest proportional set size of the app with its JVM, whose heap grows to its bound when there is work
for it, whatever the length of the streams. Everything that does not fit is sorted on disk.
"""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """A run of the task: the rows that bronze had then, what it found, and what it cost."""

    what: str
    rows: int
    found: dict[str, int]
    cost: Cost


def main(
    scale: Annotated[float, typer.Option(help="1: 100M ids at most")] = 1.0,
    report: Annotated[Path, typer.Option(help="folder for bench-streams.md")] = PROJECT_FOLDER / "docs",
    again: Annotated[bool, typer.Option(help="write the report of the last measurements again")] = False,
) -> None:
    """Measure streams of a hundredth, a tenth and all of 100 million ids, in full and after 0.1% new ones."""
    kept = Settings().lakehouse_home / "bench" / "streams.json"
    if not again:
        measured = [
            asdict(one)
            for step in STEPS
            for one in measure(kept.parent / "streams", int(scale * step * IDS), typer.echo)
        ]
        kept.write_text(json.dumps({"machine": machine.described(), "runs": measured}, indent=1) + "\n")
    known = json.loads(kept.read_text())
    runs = [Measured(**one | {"cost": Cost(**one["cost"])}) for one in known["runs"]]
    (report / "bench-streams.md").write_text(write(known["machine"], runs), encoding="utf-8")
    typer.echo(f"The report is {report / 'bench-streams.md'}.")


def measure(home: Path, ids: int, progress: Progress) -> list[Measured]:
    """Make about so many ids in the folder ``home``, and measure them twice."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    done = []
    with embedded_postgres.run_server(home / "postgres") as lakes:
        lakes.create_database("streams")
        own = {
            "lakehouse_warehouse": str(home / "warehouse"),
            "lakehouse_catalog_uri": lakes.dsn("streams"),
            "synapse_server_name": "bench.example",
        }
        pid = server_pid(home / "postgres")
        with Worker("bench.streaming:Streaming", Settings().model_copy(update=own | LARGE)) as worker:
            for what, new in (("all of them", ids), ("0.1% new ids", int(MORE * ids))):
                rows = worker.call("fill", new)
                progress(f"{rows:,} rows, {what}")
                with Meter(worker.pid, pid, jvm=True) as meter:
                    worker.call("measure")
                assert meter.cost
                done.append(Measured(what, rows, dict(worker.call("found")), meter.cost))
                progress(f"measured in {meter.cost.wall:.1f} s: {done[-1].found}")
                worker.call("publish")
    shutil.rmtree(home)
    return done


def write(described: dict[str, str], runs: list[Measured]) -> str:
    """The whole page."""
    lines = [
        (
            f"{one.rows:,}",
            one.what,
            f"{one.found['ids']:,}",
            f"{one.found['gaps']:,}",
            f"{one.cost.wall:.1f}",
            f"{one.cost.cpu:.1f}",
            f"{one.cost.memory / 1e6:,.0f}",
        )
        for one in runs
    ]
    names = ("rows in bronze", "measured", "ids", "ids found missing", "seconds", "CPU seconds", "MB of memory")
    return "\n".join([_HEAD, *markdown(("", ""), described.items()), "", *markdown(names, lines), ""])


if __name__ == "__main__":
    typer.run(main)
