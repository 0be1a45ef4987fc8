"""``lakehouse run`` when it is refused, has to wait, or is stopped."""

import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.embedded import processes
from synapse_lakehouse.lake import lease, tables
from synapse_lakehouse.lake.catalog import pyiceberg_catalog
from synapse_lakehouse.settings import Settings
from tests.conftest import BIN, environment, lakehouse


def start(settings: Settings) -> subprocess.Popen[str]:
    """``lakehouse run`` as a terminal would start it."""
    return subprocess.Popen(
        [BIN / "lakehouse", "run"], env=environment(settings), cwd=settings.lakehouse_home,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def read_until(run: subprocess.Popen[str], pattern: str) -> str:
    """The line of the run's output that matches ``pattern``."""
    assert run.stdout
    said = []
    for line in run.stdout:
        said.append(line)
        if re.search(pattern, line):
            return line
    raise AssertionError("".join(said))


def interrupt(run: subprocess.Popen[str]) -> str:
    """What Ctrl-C does; the rest of the output."""
    children = {int(child) for child in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()}
    run.send_signal(signal.SIGINT)
    rest, _ = run.communicate(timeout=60)
    assert run.returncode == 130
    assert processes.members(children) == []
    return rest


def holder(settings: Settings) -> str | None:
    """Who holds the lease of the lake."""
    with closing(pyiceberg_catalog(settings)) as catalog:
        held = lease.holding(catalog)
    return held.holder if held else None


def test_a_future_interval_is_refused_before_anything_starts(settings: Settings) -> None:
    done = lakehouse(settings, "run", "--date", f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}")
    assert done.returncode == 1
    assert "is not over yet" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("date", ["yesterday", "2026-02-30"])
def test_a_date_that_is_none_is_refused(settings: Settings, date: str) -> None:
    done = lakehouse(settings, "run", "--date", date)
    assert done.returncode == 2
    assert date in done.stderr


def test_a_second_run_waits_and_can_be_stopped(new_lake: Callable[..., Settings]) -> None:
    settings = new_lake()
    with closing(pyiceberg_catalog(settings)) as catalog:
        tables.ensure(catalog, catalogue.load())
        lease.Lease(catalog, "the first run", "run_20261120T000000Z_00000000", seconds=600).acquire()
    run = start(settings)
    read_until(run, "waiting for run the first run")
    assert "no release was published" in interrupt(run)
    assert holder(settings) == "the first run"
