"""Start ``lakehouse run`` as a process, and acquire the lease that it waits for."""

import re
import subprocess
import time
from contextlib import closing
from pathlib import Path

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.lease.lease import LEASES_TABLE, Lease, LeaseError
from synapse_lakehouse.iceberg.lease.lease_holder import parse_current_lease
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import find_free_port
from tests.conftest import BIN, environment


def start(settings: Settings, *arguments: str) -> subprocess.Popen[str]:
    """Start ``lakehouse run`` as a terminal does."""
    return _start(settings, "run", *arguments)


def start_ui(settings: Settings) -> subprocess.Popen[str]:
    """Start ``lakehouse ui`` as a terminal does, on a free port."""
    return _start(settings, "ui", "--port", str(find_free_port()))


def _start(settings: Settings, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BIN / "lakehouse", *arguments], env=environment(settings), cwd=settings.lakehouse_home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def read_until(run: subprocess.Popen[str], pattern: str) -> str:
    """Return the first line of the run's output that matches ``pattern``."""
    assert run.stdout
    lines = []
    for line in run.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return line
    raise AssertionError("".join(lines))


def children(run: subprocess.Popen[str]) -> set[int]:
    """Return the IDs of the run's child processes."""
    return set(map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()))


def lease_of_another_run(settings: Settings) -> Lease:
    """Acquire the lake lease for ten minutes as the run ``the first run``; return it."""
    catalog = open_catalog(settings)
    tables.ensure_tables(catalog, catalogue.load_catalogue())
    lease = Lease(catalog, "the first run", "run_20261120T000000Z_00000000", seconds=600)
    lease.acquire()
    return lease


def acquire_when_free(lease: Lease, seconds: float) -> tuple[str, ...]:
    """Acquire the lease; return the branches of crashed runs. Wait while another run holds it, even a killed run."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return lease.acquire()
        except LeaseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def lease_holder(settings: Settings) -> str | None:
    """Return the holder of the lake lease."""
    with closing(open_catalog(settings)) as catalog:
        snapshot = catalog.load_table(LEASES_TABLE).current_snapshot()
    lease = parse_current_lease(snapshot.summary.additional_properties) if snapshot and snapshot.summary else None
    return lease.holder if lease else None
