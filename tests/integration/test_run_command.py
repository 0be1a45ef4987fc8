"""``lakehouse run`` when it is refused, waits for another run, or is stopped."""

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from synapse_lakehouse.alerts import incident_log
from synapse_lakehouse.audit import store
from synapse_lakehouse.cli.runs.out_of_memory import format_gibibytes
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.local import child_processes, memory
from tests.conftest import BIN, environment, lakehouse
from tests.support import runs


def interrupt(run: subprocess.Popen[str], exit_code: int = 130) -> str:
    """Send SIGINT, as Ctrl-C does, and return the rest of the output."""
    children = runs.children(run)
    run.send_signal(signal.SIGINT)
    rest, _ = run.communicate(timeout=60)
    assert run.returncode == exit_code
    assert child_processes.list_session_members(children) == []
    return rest


def test_a_future_interval_is_refused_before_anything_starts(settings: Settings) -> None:
    result = lakehouse(settings, "run", "--date", f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}")
    assert result.returncode == 1
    assert "is not over yet" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("date", ["yesterday", "2026-02-30"])
def test_an_invalid_date_is_refused(settings: Settings, date: str) -> None:
    result = lakehouse(settings, "run", "--date", date)
    assert result.returncode == 2
    assert date in result.stderr


def test_a_refused_first_run_is_explained_and_alerts(new_lake: Callable[..., Settings], settings: Settings) -> None:
    wrong = make_conninfo(str(settings.synapse_dsn), password="secret-word")
    lake = new_lake(synapse_dsn=wrong)
    result = lakehouse(lake, "run")
    output = result.stdout + result.stderr
    assert result.returncode == 1
    assert "password for synapse_sample is wrong" in output
    assert "Traceback" not in output
    assert "secret-word" not in output
    with closing(open_catalog(lake)) as catalog:
        (incident,) = incident_log.read_incident_log(catalog).events
    assert (incident.kind, incident.begins) == ("run-failed", True)


@pytest.mark.heavy
def test_concurrent_runs_publish_one_after_the_other(new_lake: Callable[..., Settings]) -> None:
    settings = new_lake()
    processes = [runs.start(settings, "--date", "2026-11-01") for _ in range(2)]
    outputs = [item.communicate(timeout=1200)[0] for item in processes]
    assert [item.returncode for item in processes] == [0, 0], outputs
    catalog = open_catalog(settings)
    first, second = store.read_releases(catalog)
    assert first.interval_start == second.interval_start
    assert first.run_id != second.run_id
    assert first.tables["bronze.events"] == second.tables["bronze.events"], "the second run copied no row"
    count = "select count(*) as rows, count(distinct event_id) as events from bronze.events"
    (rows,) = json.loads(lakehouse(settings, "query", count, "--format", "json").stdout)
    assert rows["rows"] == rows["events"] > 1000


@pytest.mark.heavy
def test_a_second_run_that_waits_can_be_stopped(new_lake: Callable[..., Settings]) -> None:
    settings = new_lake()
    run = _start_waiting_run(settings)
    assert "release was published" in interrupt(run)
    assert _count_unfinished_runs(settings) == 0
    assert runs.lease_holder(settings) == "the first run"


@pytest.mark.heavy
def test_a_killed_airflow_is_explained(new_lake: Callable[..., Settings]) -> None:
    run = _start_waiting_run(new_lake())
    for child in runs.children(run):
        os.kill(child, signal.SIGKILL)
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "was killed by signal 9" in output
    assert f"The limit is {format_gibibytes(memory.read_memory().limit)}" in output
    assert "LAKEHOUSE_DRIVER_MEMORY" in output


@pytest.mark.heavy
def test_a_run_without_enough_memory_is_explained(new_lake: Callable[..., Settings], memory_limit: Path) -> None:
    in_group = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
    settings = new_lake()
    result = subprocess.run(
        ["sh", "-c", in_group, memory_limit, BIN / "lakehouse", "run"], env=environment(settings),
        cwd=settings.lakehouse_home, text=True, capture_output=True, check=False, timeout=1800,
    )  # fmt: skip
    assert result.returncode == 1, result.stdout
    assert (
        "The kernel killed a process of this run (signal 9) because memory ran out. The limit is 0.7 GiB"
        in result.stdout
    )
    assert str(memory_limit) in result.stdout
    assert "LAKEHOUSE_DRIVER_MEMORY" in result.stdout


@pytest.fixture
def memory_limit() -> Iterator[Path]:
    """Yield a control group with 700 MiB of memory. The user needs the right to create control groups."""
    version_1 = memory.CGROUPS / "memory"
    group = (version_1 if version_1.is_dir() else memory.CGROUPS) / f"lakehouse_{uuid.uuid4().hex[:8]}"
    group.mkdir()
    (group / ("memory.limit_in_bytes" if version_1.is_dir() else "memory.max")).write_text("700M")
    yield group
    group.rmdir()


@pytest.mark.heavy
def test_a_killed_test_run_is_not_continued(new_lake: Callable[..., Settings]) -> None:
    settings = new_lake()
    run = _start_waiting_run(settings)
    children = runs.children(run)
    run.kill()
    run.communicate(timeout=60)
    deadline = time.monotonic() + 10
    while child_processes.list_session_members(children):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert _count_unfinished_runs(settings) == 1
    ui = runs.start_ui(settings)
    try:
        runs.read_until(ui, "Airflow is at")
        assert _count_unfinished_runs(settings) == 0
    finally:
        interrupt(ui, exit_code=0)


def _start_waiting_run(settings: Settings) -> subprocess.Popen[str]:
    """Start and return a run that waits for another run, ``the first run``."""
    runs.lease_of_another_run(settings)
    run = runs.start(settings)
    runs.read_until(run, "Run the first run holds the lake lease")
    return run


def _count_unfinished_runs(settings: Settings) -> int:
    """Return the number of runs of `lakehouse run` that Airflow has not ended."""
    password = (settings.lakehouse_home / "postgres.airflow.password").read_text()
    login = {"user": "airflow", "password": password, "dbname": "airflow"}
    metadata = make_conninfo(str(settings.lakehouse_catalog_uri), **login)
    with psycopg.connect(metadata) as airflow:
        unfinished = "select count(*) from dag_run where triggered_by = 'TEST' and state in ('queued', 'running')"
        (count,) = airflow.execute(unfinished).fetchone() or (0,)
    return int(count)
