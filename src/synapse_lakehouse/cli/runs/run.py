"""``lakehouse run``: run the DAG for one data interval, show its progress, then the summary of the release."""

import errno
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated

import typer
from rich.text import Text

from synapse_lakehouse.cli.doctor import machine
from synapse_lakehouse.cli.runs import out_of_memory, release_summary, run_output, scheduler_run
from synapse_lakehouse.cli.runs.local_run import LocalRun
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.local import child_processes, home_lock, memory
from synapse_lakehouse.local.airflow import credentials, prepare_airflow


def run(
    day: Annotated[
        datetime | None,
        typer.Option(
            "--date",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"],
            help="A time in the data interval, in LAKEHOUSE_TIMEZONE; default: the last complete interval.",
        ),
    ] = None,
) -> None:
    """Run the lakehouse DAG once, for one data interval, and publish a release."""
    settings, now = Settings(), datetime.now(UTC)
    for finding in chain(machine.check_setting_names(), machine.check_network()):
        run_output.print_stage(f"{finding.message} {finding.advice}")
    schedule = settings.schedule
    start, end = (
        schedule.find_interval(day.replace(tzinfo=schedule.zone)) if day else schedule.find_previous_interval(now)
    )
    Run("requested", start, end).require_complete(now)
    try:
        with (
            child_processes.interrupt_on_signals(),
            prepare_airflow.prepare_airflow(settings, report=run_output.print_stage) as prepared,
        ):
            _run(prepared, start, end, now)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise LakehouseError(
            f"The disk is full: no space is left under {settings.lakehouse_home}. No release was published. "
            "Free disk space (`lakehouse doctor` shows how much is free), then run again."
        ) from None


def _run(prepared: prepare_airflow.PreparedAirflow, start: datetime, end: datetime, now: datetime) -> None:
    interval = f"{start:%Y-%m-%dT%H:%MZ} to {end:%Y-%m-%dT%H:%MZ}"
    run_output.print_stage(f"running the DAG {prepared.main_dag} for {interval}")
    kills = memory.count_memory_kills()
    with home_lock.claim_for_test_run(prepared.settings, run_output.print_stage) as scheduler:
        run = _create_run(prepared, scheduler, start, end, now)
        try:
            with closing(run):
                failures = run_output.show_steps(run.steps())
        except KeyboardInterrupt:
            run_output.console.print(Text(run.farewell, "yellow"))
            raise typer.Exit(130) from None
    if run.failed():
        run_output.print_failures(failures, run.where)
        reason = out_of_memory.explain_failure(
            failures, memory.count_memory_kills() - kills, memory.read_memory(), prepared.settings
        )
        if reason:
            run_output.console.print(Text(reason, "red"))
        raise typer.Exit(1)
    release_summary.summary()


def _create_run(
    prepared: prepare_airflow.PreparedAirflow,
    scheduler: home_lock.RunningScheduler | None,
    start: datetime,
    end: datetime,
    now: datetime,
) -> LocalRun | scheduler_run.ScheduledRun:
    """Create the run in the scheduler of a running `make ui`, which would execute it anyway; else in this process."""
    logical_date = prepared.settings.schedule.choose_logical_date(end, now)
    if scheduler and scheduler.others:
        raise LakehouseError(
            f"The Airflow at {scheduler.address} has other settings than this command ({', '.join(scheduler.others)}). "
            "It would run the DAG with its own settings, and may read another homeserver. Stop "
            "`make ui` and start it with these settings, or run this command with the settings of `make ui`."
        )
    if scheduler:
        login = credentials.read_admin_login(prepared.home)
        return scheduler_run.trigger_run(scheduler.address, prepared.main_dag, login, logical_date, start, end)
    log = prepared.settings.lakehouse_home / "logs" / f"run_{start:%Y%m%dT%H%M}_{now:%Y%m%dT%H%M%S%f}.log"
    return LocalRun(prepared, logical_date, start, end, log)
