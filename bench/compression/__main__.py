"""Compare state compression with Synapse's own compressor, and write ``docs/bench-compression.md``."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from bench.compression.compressors import compress_by_lakehouse, compress_by_reference, create_original, plan
from bench.compression.synthetic_rooms import LARGE, SHAPES, room
from bench.compression.tables import STRATEGIES, Round, plan_table, rows_table, write_ratio_table, write_table
from bench.compression.transaction_log import OPTIONS
from bench.machine import describe_machine
from bench.report import DOCS, Folder, write_page
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres


def main(
    scale: Annotated[float, typer.Option(help="factor for the state groups of each room")] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="repetitions of every measurement")] = 3,
    folder: Folder = DOCS,
) -> None:
    """Compress rooms of several shapes with both compressors, and plan a very large room."""
    machine = describe_machine(Scale=f"{scale:g}", Rounds=str(rounds))
    home = Settings().lakehouse_home / "bench" / "compression"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    rooms: dict[str, list[Round]] = {}
    options = (*OPTIONS, "autovacuum=off", "max_wal_size=8GB")
    with embedded_postgres.run_server(home / "postgres", options=options) as server:
        for name, shape in SHAPES.items():
            create_original(server, room(shape.times(scale), seed=1))
            rooms[name] = [measure_round(server, home) for _ in range(rounds)]
            typer.echo(f"{name}: {rooms[name][-1].reference.wall:.1f} s by the reference")
        create_original(server, room(LARGE.times(scale), seed=1))
        large_plans = {strategy: plan(server, strategy) for strategy in STRATEGIES}
    tables = (rows_table(rooms), plan_table(rooms, large_plans), write_table(rooms), write_ratio_table(rooms))
    write_page("bench-compression.md", folder, machine, *tables)


def measure_round(server: embedded_postgres.EmbeddedServer, home: Path) -> Round:
    """Plan and compress the room with every strategy and the reference.

    :raises AssertionError: if ``levels`` leaves other rows than the reference, whose algorithm it implements.
    """
    plans = {strategy: plan(server, strategy) for strategy in STRATEGIES}
    reference = compress_by_reference(server, home)
    if plans["levels"].rows_after != reference.rows_after:
        raise AssertionError(f"levels leaves {plans['levels'].rows_after} rows, the reference {reference.rows_after}")
    return Round(plans, reference, {strategy: compress_by_lakehouse(server, home, strategy) for strategy in STRATEGIES})


if __name__ == "__main__":
    typer.run(main)
