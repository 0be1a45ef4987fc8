"""Measure, keep the figures, and write the report and its picture."""

from pathlib import Path
from typing import Annotated

import typer

from bench import machine, measuring, results
from bench.picture import draw
from bench.report import write
from bench.results import Results
from bench.source import TABLES, filled
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings


def main(
    scale: Annotated[float, typer.Option(help="1: 2M rows in events and event_json, 10M in state_groups_state")] = 1.0,
    increments: Annotated[float, typer.Option(help="the scale for increments")] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="how often everything is measured")] = 5,
    report: Annotated[Path, typer.Option(help="folder for bench.md and bench.svg")] = PROJECT_FOLDER / "docs",
    again: Annotated[bool, typer.Option(help="write the report of the last measurements again")] = False,
) -> None:
    """Compare the lakehouse's copy with its peers and with the limit, side by side on generated data."""
    kept = Settings().lakehouse_home / "bench" / "results.json"
    if not again:
        measure(kept, scale, increments, rounds)
    found = results.read(kept)
    (report / "bench.svg").write_text(draw(found), encoding="utf-8")
    (report / "bench.md").write_text(write(found), encoding="utf-8")
    typer.echo(f"The report is {report / 'bench.md'}.")


def measure(kept: Path, scale: float, scale_of_increments: float, rounds: int) -> None:
    """Fill the sources if need be, measure everything, and keep it in the file ``kept``."""
    home = kept.parent
    with filled(home, scale, typer.echo) as source:
        found = Results(scale, machine.described(source), *machine.sizes(source, TABLES))
        found.samples.extend(measuring.full_copies(source, home, rounds, typer.echo))
        found.stages.extend(measuring.stages(source, home, rounds, typer.echo))
    with filled(home, scale_of_increments, typer.echo) as source:
        found.increments.extend(measuring.increments(source, home, rounds, typer.echo))
    found.machine["Load after"] = machine.load()
    found.write(kept)


if __name__ == "__main__":
    typer.run(main)
