"""Measure state compression beside Synapse's own compressor, and write ``docs/bench-compression.md``.

``python -m bench.compression`` makes rooms of several shapes in PostgreSQL, and lets each way compress each of them.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bench import machine
from bench.compression import contest
from bench.compression.report import Results, Round, write
from bench.compression.synthetic_rooms import LARGE, SHAPES, room
from bench.compression.transactions import OPTIONS
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.local.postgres import embedded_postgres


def main(
    scale: Annotated[float, typer.Option(help="as many times the state groups of each room")] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="how often each way compresses each room")] = 3,
    report: Annotated[Path, typer.Option(help="folder for bench-compression.md")] = PROJECT_FOLDER / "docs",
    again: Annotated[bool, typer.Option(help="write the report of the last measurements again")] = False,
) -> None:
    """Plan and compress rooms, in turns with the reference, and plan a very large one."""
    home = Settings().lakehouse_home / "bench" / "compression"
    kept = home.with_suffix(".json")
    if not again:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        kept.write_text(json.dumps(asdict(measure(home, scale, rounds)), indent=1) + "\n")
    (report / "bench-compression.md").write_text(write(Results.read(kept)), encoding="utf-8")
    typer.echo(f"The report is {report / 'bench-compression.md'}.")


def measure(home: Path, scale: float, rounds: int) -> Results:
    """Compress each room in ``rounds`` rounds; what is made for that stays below ``home``."""
    found = Results(scale, machine.described())
    with embedded_postgres.run_server(
        home / "postgres", options=(*OPTIONS, "autovacuum=off", "max_wal_size=8GB")
    ) as server:
        for name, shape in SHAPES.items():
            contest.fill(server, room(shape.times(scale), seed=1))
            for number in range(1, rounds + 1):
                one = Round(
                    levels=contest.plan(server, "levels"),
                    best=contest.plan(server, "best"),
                    reference=contest.by_reference(server, home),
                    levels_applied=contest.by_ours(server, home, "levels"),
                    best_applied=contest.by_ours(server, home, "best"),
                )
                if one.levels.rows_after != one.reference.rows_after:
                    raise AssertionError(f"{name}: levels leave other rows than the reference: {one}")
                found.rooms.setdefault(name, []).append(one)
                typer.echo(
                    f"{name}, {number}/{rounds}: {one.best.rows_before:,} rows, {one.reference.rows_after:,} by the "
                    f"reference in {one.reference.wall:.1f} s, {one.best.rows_after:,} by best "
                    f"in {one.best_applied.wall:.1f} s"
                )
        contest.fill(server, room(LARGE.times(scale), seed=1))
        found.large = {strategy: contest.plan(server, strategy) for strategy in ("levels", "best")}
        typer.echo(f"{found.large['best'].rows_before:,} rows in {found.large['best'].memory / 1e6:,.0f} MB")
    return found


if __name__ == "__main__":
    typer.run(main)
