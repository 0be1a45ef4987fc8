"""``lakehouse run`` as a process that tests watch and stop, and the lease that it waits for."""

import re
import subprocess
from contextlib import closing
from pathlib import Path

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.lease.lease import Lease, get_current_holder
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import find_free_port
from tests.conftest import BIN, environment


def start(settings: Settings, *arguments: str) -> subprocess.Popen[str]:
    """``lakehouse run`` as a terminal would start it."""
    return _start(settings, "run", *arguments)


def start_ui(settings: Settings) -> subprocess.Popen[str]:
    """``lakehouse ui`` as a terminal would start it, on a free port."""
    return _start(settings, "ui", "--port", str(find_free_port()))


def _start(settings: Settings, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BIN / "lakehouse", *arguments], env=environment(settings), cwd=settings.lakehouse_home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
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


def children(run: subprocess.Popen[str]) -> set[int]:
    """Processes that the run started itself."""
    return set(map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()))


def lease_of_another_run(settings: Settings) -> Lease:
    """The lake's lease, which the run ``the first run`` holds for ten minutes, unless it gives it back."""
    catalog = open_catalog(settings)
    tables.ensure_tables(catalog, catalogue.load_catalogue())
    lease = Lease(catalog, "the first run", "run_20261120T000000Z_00000000", seconds=600)
    lease.acquire()
    return lease


def lease_holder(settings: Settings) -> str | None:
    """Who holds the lease of the lake."""
    with closing(open_catalog(settings)) as catalog:
        held = get_current_holder(catalog)
    return held.holder if held else None
