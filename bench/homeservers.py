"""Measure the nightly runs of small homeservers that share an Airflow, and write ``docs/bench-homeservers.md``."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.machine import describe_machine
from bench.meter import Cost, Meter, server_pid
from bench.report import DOCS, Cell, Folder, Table, write_page
from sample.homeserver import SERVER_NAME, homeserver
from sample.processes import free_ports
from sample.settle import settle
from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import RELEASES_TABLE
from synapse_lakehouse.cli.runs.scheduler_run import ScheduledRun, trigger_run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.local import child_processes
from synapse_lakehouse.local.airflow import credentials
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.local.services import AIRFLOW_DATABASE, run_embedded_server

SERVERS: Final = 20
MESSAGES: Final = 50
NIGHTS: Final = {
    "`lakehouse`, first copy": "lakehouse",
    "`lakehouse`, after new messages": "lakehouse",
    "`stream_watch`": "stream_watch",
    "`lake_maintenance`": "lake_maintenance",
}
"""Row of the table → its DAG, which runs once for each homeserver. The rows are measured in this order."""

COLUMNS: Final = (
    "DAG", "runs", "minutes until the last run has ended", "CPU seconds of a run", "PostgreSQL's CPU seconds of a run",
    "peak memory, GiB",
)  # fmt: skip

_READY_SECONDS: Final = 300
_STOP_SECONDS: Final = 60.0
_SAMPLE_SECONDS: Final = 5.0


class FailedRunError(LakehouseError):
    """A run failed, so the measurement is not valid."""


def main(
    folder: Folder = DOCS,
    servers: Annotated[int, typer.Option(help="number of homeservers")] = SERVERS,
    resume: Annotated[
        bool, typer.Option("--resume", help="keep the lakes and the measured rows of a benchmark that was stopped")
    ] = False,
) -> None:
    """Create homeservers with the content of the sample, and let the scheduler run one DAG of all of them at a time."""
    machine = describe_machine(("apache-airflow", "pyspark", "pyiceberg"))
    shared = Settings().lakehouse_home
    home = shared / "bench" / "homeservers"
    if not resume:
        shutil.rmtree(home, ignore_errors=True)
    (home / "settings").mkdir(parents=True, exist_ok=True)
    if not (home / "spark").exists():
        (home / "spark").symlink_to(shared / "spark")
    names = [f"server{number:02}" for number in range(1, servers + 1)]
    measurements = home / "measurements.json"
    rows: dict[str, Sequence[Cell]] = json.loads(measurements.read_text()) if measurements.exists() else {}
    with run_embedded_server(Settings().model_copy(update={"lakehouse_home": home})) as server:
        # Without this, Airflow continues runs of a benchmark that was stopped.
        server.tool("dropdb", "--if-exists", "--force", AIRFLOW_DATABASE)
        for name in names:
            create_homeserver(home, server, name)
        without_release = [name for name in names if not has_release(home, server, name)]
        with run_airflow(home, server) as (process, address):
            for number, (row_name, dag) in enumerate(NIGHTS.items()):
                homeservers = names if number else without_release
                if row_name in rows or not homeservers:
                    continue
                if dag == "lakehouse":
                    send_messages(home, server, homeservers)
                with Meter(
                    process.pid, server_pid(home / "postgres"), jvm=True, sample_seconds=_SAMPLE_SECONDS
                ) as meter:
                    run_dags(home, address, [f"{dag}.{name}" for name in homeservers])
                rows[row_name] = describe_night(row_name, len(homeservers), meter.cost)
                # After a later failure, --resume uses the measured rows.
                measurements.write_text(json.dumps(rows))
                heading = f"{servers} homeservers" + (" (incomplete)" if number + 1 < len(NIGHTS) else "")
                write_page("bench-homeservers.md", folder, machine, Table(heading, COLUMNS, rows.values()))
    shutil.rmtree(home)


def create_homeserver(home: Path, server: EmbeddedServer, name: str) -> None:
    """Create a database with the content of the sample, a catalog, and the settings file."""
    if sample.SAMPLE_DATABASE not in server.databases():
        sample.restore_sample(server)
    if name not in server.databases():
        server.create_database(name, sample.SAMPLE_DATABASE)
        server.create_database(f"iceberg_{name}")
    settings = {
        "SYNAPSE_DSN": server.dsn(name),
        "SYNAPSE_SERVER_NAME": SERVER_NAME,
        "SYNAPSE_CONFIG": home / name / "homeserver.yaml",
    }
    text = "".join(f"{setting}='{value}'\n" for setting, value in settings.items())
    (home / "settings" / f"{name}.env").write_text(text, encoding="utf-8")


def has_release(home: Path, server: EmbeddedServer, name: str) -> bool:
    """Return whether an earlier run of the benchmark published a release of the homeserver."""
    own = {"lakehouse_home": home, "lakehouse_homeserver": name}
    settings = Settings().model_copy(update={"lakehouse_catalog_uri": server.dsn(f"iceberg_{name}")} | own)
    with closing(open_catalog(settings)) as catalog:
        return catalog.table_exists(RELEASES_TABLE) and store.read_latest_release(catalog) is not None


def send_messages(home: Path, server: EmbeddedServer, names: Sequence[str]) -> None:
    """Start each Synapse, send messages of a new user to a new room, and stop it."""

    def send(name: str) -> None:
        with homeserver(home / name, dsn=server.dsn(name), workers=False) as hs:
            user = hs.register(f"user{time.time_ns()}")
            room = user.create_room(preset="public_chat")
            for number in range(MESSAGES):
                user.say(room, f"message {number}")
            settle(hs.dsn)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(send, names))


@contextmanager
def run_airflow(home: Path, server: EmbeddedServer) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run ``lakehouse ui`` with the homeservers. Its scheduler starts only runs that are triggered."""
    (port,) = free_ports(1)
    environment = os.environ | {
        "LAKEHOUSE_HOME": str(home),
        "LAKEHOUSE_HOMESERVERS": str(home / "settings"),
        "LAKEHOUSE_CATALOG_URI": server.dsn("iceberg_{homeserver}"),
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
    }
    command = [str(Path(sys.executable).with_name("lakehouse")), "ui", "--port", str(port)]
    with (home / "ui.log").open("wb") as log:
        process = child_processes.start_process(command, environment, log.fileno())
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        child_processes.stop_sessions([process], grace_seconds=_STOP_SECONDS)


def run_dags(home: Path, address: str, dags: Sequence[str]) -> None:
    """Trigger a run of each DAG at once, and wait until all runs have ended.

    :raises FailedRunError: if a run fails.
    """
    runs = [_trigger(home, address, dag) for dag in dags]
    for number, run in enumerate(runs, 1):
        for _ in run.steps():
            pass
        if run.failed():
            raise FailedRunError(
                f"The run {run.run_id} of {run.dag_id} failed. Its logs are in {home / 'airflow/logs'}."
            )
        typer.echo(f"{number} of {len(runs)}: {run.dag_id}")


def describe_night(name: str, runs: int, cost: Cost) -> tuple[Cell, ...]:
    """Return the row ``name`` of the table."""
    return name, runs, cost.wall / 60, cost.cpu / runs, cost.source_cpu / runs, cost.memory / 1024**3


def _trigger(home: Path, address: str, dag: str) -> ScheduledRun:
    """Trigger a run of the last data interval. Retry until Airflow has started and parsed the DAG."""
    now, deadline = datetime.now(UTC), time.monotonic() + _READY_SECONDS
    start, end = Settings().schedule.find_previous_interval(now)
    while True:
        try:
            return trigger_run(address, dag, credentials.read_admin_login(home / "airflow"), now, start, end)
        except LakehouseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


if __name__ == "__main__":
    typer.run(main)
