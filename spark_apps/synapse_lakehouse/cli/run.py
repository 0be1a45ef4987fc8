"""``lakehouse run``: the DAG for one data interval, with its progress, and what was published at the end."""

import errno
import subprocess
import textwrap
import time
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from synapse_lakehouse.cli import summary
from synapse_lakehouse.cli.progress import Progress
from synapse_lakehouse.embedded import airflow, processes
from synapse_lakehouse.run import Run
from synapse_lakehouse.settings import Settings

console = Console(highlight=False, soft_wrap=True)

MARKS = {"success": "[green]✓[/]", "skipped": "[yellow]-[/]", "failed": "[red]✗[/]", "up_for_retry": "[yellow]↻[/]"}


SAY_SECONDS = 5.0


class RunError(RuntimeError):
    """A run that was refused before anything was started."""


def run(
    day: Annotated[
        datetime | None,
        typer.Option(
            "--date", formats=["%Y-%m-%d"], help="Day of the data interval, UTC; the last complete day if omitted."
        ),
    ] = None,
) -> None:
    """Run the lakehouse DAG once, for one day, and publish a release."""
    settings, now = Settings(), datetime.now(UTC)
    start = day.replace(tzinfo=UTC) if day else _midnight(now.date() - timedelta(days=1))
    try:
        Run("asked", start, start + timedelta(days=1)).refuse_the_future(now)
    except ValueError as refusal:
        raise RunError(str(refusal)) from None
    try:
        with processes.interruptible(), airflow.prepared(settings, tell=_tell) as prepared:
            _tell(f"running the DAG {airflow.DAG} for {start:%Y-%m-%d}, UTC")
            _dags_test(prepared, start, now)
            summary.summary()
    except KeyboardInterrupt:
        console.print("[yellow]Stopped: no release was published. Run it again at any time.[/]")
        raise typer.Exit(130) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise RunError(
            f"The disk is full: there is no room left under {settings.lakehouse_home}. No release was published. "
            "Free space (`lakehouse doctor` shows how much there is), then run again."
        ) from None


def _dags_test(prepared: airflow.Airflow, start: datetime, now: datetime) -> None:
    log = prepared.settings.lakehouse_home / "logs" / f"run_{start:%Y%m%d}_{now:%Y%m%dT%H%M%S%f}.log"
    log.parent.mkdir(exist_ok=True)
    progress = Progress()
    child = processes.start(
        [str(airflow.BIN / "airflow"), "dags", "test", airflow.DAG, _logical_date(start, now)],
        prepared.environment | {"AIRFLOW__LOGGING__JSON_LOGS": "True"},
        subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        _follow(child.stdout, log, progress)
        child.wait()
    except KeyboardInterrupt:
        console.print("[yellow]Stopping …[/]")
        raise
    finally:
        processes.stop([child])
        if child.returncode and progress.run_id:
            _release_lease(prepared.settings, progress.run_id, start)
    if child.returncode:
        _explain(progress, log)
        raise typer.Exit(1)


def _follow(lines: IO[bytes], log: Path, progress: Progress) -> None:
    """Show each step; what a task says as one line that changes, or where there is no terminal, once in a while."""
    shown = time.monotonic()
    with log.open("wb") as kept, console.status("starting Airflow") as status:
        for line in lines:
            kept.write(line)
            kept.flush()
            step = progress.read(line.decode(errors="replace").rstrip("\n"))
            if step is None:
                continue
            status.update(f"{step.task} [dim]{escape(step.headline)}[/]")
            overdue = not console.is_terminal and time.monotonic() - shown > SAY_SECONDS
            if step.kind == "started" and not console.is_terminal:
                console.print(f"→ {step.task}")
            elif step.kind == "noted" or (step.kind == "said" and overdue):
                shown = time.monotonic()
                console.print(textwrap.indent(escape(step.text), "    "))
            elif step.kind in MARKS:
                again = " [yellow]failed, will be tried again[/]" if step.kind == "up_for_retry" else ""
                console.print(f"{MARKS[step.kind]} {step.task:<32} [dim]{step.seconds:6.1f} s[/]{again}")


def _explain(progress: Progress, log: Path) -> None:
    for task, why in progress.failures.items():
        console.print(f"\n[bold red]{task} failed[/]\n{escape(why)}")
    if not progress.failures:
        tail = log.read_text(errors="replace").splitlines()[-10:]
        console.print("\n[bold red]The run failed[/]\n" + escape("\n".join(tail)))
    console.print(f"\n[red]No release was published.[/] The whole log: {log}")


def _release_lease(settings: Settings, run_id: str, start: datetime) -> None:
    """Give back at once what a run that was stopped would hold until its lease expires."""
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog
    from synapse_lakehouse.lake.lease import Lease

    branch = Run(run_id, start, start + timedelta(days=1)).branch
    with closing(pyiceberg_catalog(settings)) as catalog:
        Lease(catalog, run_id, branch, settings.lakehouse_lease_seconds).release()


def _logical_date(start: datetime, now: datetime) -> str:
    """A moment in the day after the interval, which Airflow takes to mean the interval; never the same one twice."""
    return ((start + timedelta(days=1)).replace(tzinfo=None) + (now - _midnight(now.date()))).isoformat()


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _tell(stage: str) -> None:
    console.print(f"[dim]· {stage}[/]")
