"""Runs are killed at random times. The next run that is not killed publishes exactly the content of the source."""

import os
import queue
import random
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import psycopg
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import is_run_branch
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.maintenance import maintenance
from synapse_lakehouse.iceberg.write.branches import load_run_tables
from tests.conftest import environment
from tests.support.incremental_lake import IncrementalLake, open_incremental_lake
from tests.support.kill_processes import VICTIMS
from tests.support.killable_run import few_tables
from tests.support.runs import acquire_when_free

pytestmark = pytest.mark.heavy
SEED = int(os.environ.get("KILLS_SEED") or time.time())
KILLS = 52
KILLS_BETWEEN_CHECKS = 5
AIMED_EVERY = 2 * (KILLS_BETWEEN_CHECKS + 1)
"""Every n-th run is killed while it copies a table in chunks, so that the next run resumes the copy."""
MAX_MISSED = 20
LEASE_SECONDS = 10
TIMEOUT_SECONDS = 300.0
CLUSTER = {"SPARK_MASTER": "local-cluster[1,2,1024]", "SPARK_LOCAL_IP": "127.0.0.1"}
"""An executor in a process of its own, so that the driver and the executor can be killed separately."""
UPDATE_EVERY_ROW = "update event_json set format_version = format_version"
CHANGES = (
    UPDATE_EVERY_ROW,
    "update events set depth = depth + 1",
    "update state_groups_state set event_id = event_id where random() < 0.7",
    "update events set outlier = not outlier where random() < 0.1",
    "update event_json set json = '{}' where random() < 0.02",
    "delete from event_edges where random() < 0.02",
    "delete from event_json where random() < 0.01",
    "update room_memberships set forgotten = 1 - forgotten where random() < 0.3",
    "insert into rejections select event_id, 'why', 'now' from events where random() < 0.01 on conflict do nothing",
    "update receipts_linearized set stream_id = stream_id + 100000 where random() < 0.05",
    "vacuum (full) events",
)


@dataclass
class KillableProcess:
    """A process in which runs are killed (``tests.support.killable_run``).

    ``outcomes``: its output lines; None after its end.
    """

    process: subprocess.Popen[str]
    outcomes: "queue.Queue[str | None]"

    def await_outcome(self, seconds: float = TIMEOUT_SECONDS) -> str | None:
        """Return the next outcome; None if the process died."""
        return self.outcomes.get(timeout=seconds)

    def run(self, number: int) -> None:
        """Start a run."""
        assert self.process.stdin
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()


@dataclass
class KilledRuns:
    """Runs on a lake whose source changes before each; most of them are killed.

    ``duration``: seconds of an undisturbed run; ``missed``: consecutive runs without a victim.
    """

    lake: IncrementalLake
    source: psycopg.Connection[tuple[object, ...]]
    log: IO[str]
    rng: random.Random
    process: KillableProcess | None = None
    runs: int = 0
    killed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VICTIMS, 0))
    duration: float = 20.0
    missed: int = 0

    def run(self) -> None:
        """Change the source, and run undisturbed or kill the run."""
        process = self.process = self.process or _start_process(self.lake.settings, self.log)
        is_undisturbed = self.runs % (KILLS_BETWEEN_CHECKS + 1) == 0
        is_aimed = self.runs % AIMED_EVERY == KILLS_BETWEEN_CHECKS
        for change in [UPDATE_EVERY_ROW] if is_aimed else self.rng.sample(CHANGES, self.rng.randint(1, 3)):
            self.source.execute(change.encode())
        self.runs += 1
        started_at = time.monotonic()
        process.run(self.runs)
        if is_undisturbed:
            assert process.await_outcome() == "done", Path(self.log.name).read_text()[-5000:]
            self.duration = time.monotonic() - started_at
            _check_published(self.lake)
            print(f"run {self.runs}: equal to the source after {sum(self.killed.values())} kills")
        else:
            self._kill(process, started_at, is_aimed=is_aimed)

    def stop(self) -> None:
        """End the process, if it lives."""
        if self.process:
            _stop_process(self.process)
        self.process = None

    def _kill(self, process: KillableProcess, started_at: float, *, is_aimed: bool) -> None:
        victim = "group" if is_aimed else min(VICTIMS, key=lambda name: (self.killed[name], self.rng.random()))
        if is_aimed:
            _await_chunk(self.lake, self.runs, process)
        else:
            time.sleep(self.rng.uniform(0, 0.9 * self.duration))
        was_killed = _kill_victim(victim, process, self.source, self.rng)
        self.killed[victim] += was_killed
        self.missed = 0 if was_killed else self.missed + 1
        assert self.missed < MAX_MISSED, f"in {self.missed} runs there was no {victim} to kill"
        seconds = time.monotonic() - started_at
        outcome = process.await_outcome()
        print(f"run {self.runs}: {victim} killed: {was_killed}, after {seconds:.1f} s: {outcome or 'died'}")
        if outcome and not was_killed:
            self.duration = seconds
        if outcome is None or (was_killed and victim in ("group", "driver")):
            self.stop()


def test_a_run_after_killed_runs_equals_the_source(
    source_copy: str, new_lake: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"KILLS_SEED={SEED}")
    settings = new_lake(synapse_dsn=source_copy, lakehouse_lease_seconds=LEASE_SECONDS)
    declared = few_tables()
    monkeypatch.setattr(catalogue, "load_catalogue", lambda: declared)
    with psycopg.connect(source_copy, autocommit=True) as source, (tmp_path / "log").open("w") as log:
        source.execute("set session_replication_role = replica")
        killed_runs = KilledRuns(IncrementalLake(settings), source, log, random.Random(SEED))
        while sum(killed_runs.killed.values()) < KILLS:
            killed_runs.run()
        killed_runs.stop()

    with open_incremental_lake(settings) as last:
        last.runs = killed_runs.runs
        last.advance()
        assert last.compare_with_source() == {}
        extents = {row["extent"] for row in _ledger(last)}
        assert {"full", "changed", "none", "resumed"} <= extents
        monkeypatch.setattr(maintenance, "UNFINISHED", timedelta(0))
        last.settings = settings.model_copy(update={"lakehouse_erasure_days": 0})
        app = last.app()
        # The last killed run may still own the lease.
        acquire_when_free(app.lease, 2 * LEASE_SECONDS)
        runpy.run_path(str(PROJECT_FOLDER / "spark_apps" / "maintain_lake.py"))["maintain_lake"](app)
        assert _orphans(app.catalog) == set()
        assert _branches(app.catalog) == set()
        assert last.compare_with_source() == {}


def _await_chunk(lake: IncrementalLake, run: int, process: KillableProcess) -> None:
    """Wait until the run has written a part of ``event_json`` on its branch."""
    lake.runs = run - 1
    app, deadline = lake.app(), time.monotonic() + TIMEOUT_SECONDS
    while process.outcomes.empty() and time.monotonic() < deadline:
        table = app.catalog.load_table("bronze.event_json")
        head, main = table.refs().get(app.run.branch), table.current_snapshot()
        if head and main and head.snapshot_id != main.snapshot_id:
            return
        time.sleep(0.02)


def _check_published(lake: IncrementalLake) -> None:
    """Assert that the release equals the source, main equals the release, and no crashed run left a branch."""
    assert lake.compare_with_source() == {}
    catalog = lake.app().catalog
    latest = store.read_releases(catalog)[-1]
    heads = {
        ".".join(table.name()): head.snapshot_id
        for table in load_run_tables(catalog)
        if (head := table.current_snapshot())
    }
    assert heads == dict(latest.tables)
    assert _branches(catalog) == set()


def _ledger(lake: IncrementalLake) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = lake.app().catalog.load_table("audit.ledger").scan().to_arrow().to_pylist()
    return rows


def _branches(catalog: Catalog) -> set[str]:
    return {ref for table in load_run_tables(catalog) for ref in table.refs() if is_run_branch(ref)}


def _orphans(catalog: Catalog) -> set[Path]:
    """Return the files in the folders of tables that no table refers to."""
    results: set[Path] = set()
    for name in (name for schema in catalog.list_namespaces() for name in catalog.list_tables(schema)):
        table = catalog.load_table(name)
        folder = _path(table.location())
        results |= {path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".crc")}
        results -= set(_list_referenced_files(table))
    return {path for path in results if not path.name.startswith("version-hint")}


def _list_referenced_files(table: Table) -> Iterator[Path]:
    yield _path(table.metadata_location)
    yield from (_path(entry.metadata_file) for entry in table.metadata.metadata_log)
    for snapshot in table.snapshots():
        yield _path(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            yield _path(manifest.manifest_path)
            yield from (_path(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io, False))


def _path(location: str) -> Path:
    return Path(urlsplit(location).path)


def _start_process(settings: Settings, log: IO[str]) -> KillableProcess:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.killable_run"],
        env=environment(settings) | CLUSTER | _spark_secret(settings) | {
            "PYTHONPATH": f"{PROJECT_FOLDER}:{PROJECT_FOLDER / 'src'}"
        },
        cwd=settings.lakehouse_home,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
    )  # fmt: skip
    outcomes: queue.Queue[str | None] = queue.Queue()

    def read_outcomes() -> None:
        assert process.stdout
        for line in process.stdout:
            if line.strip() in ("ready", "done"):
                outcomes.put(line.strip())
        outcomes.put(None)

    threading.Thread(target=read_outcomes, daemon=True).start()
    killable = KillableProcess(process, outcomes)
    assert killable.await_outcome() == "ready"
    return killable


def _spark_secret(settings: Settings) -> dict[str, str]:
    """Return the setting that a driver with executors needs."""
    file = settings.lakehouse_home / "spark.secret"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(subprocess.check_output([PROJECT_FOLDER / "docker" / "spark-secret.sh"], text=True))
    return {"LAKEHOUSE_SPARK_SECRET_FILE": str(file)}


def _stop_process(process: KillableProcess) -> None:
    if process.process.poll() is None:
        os.killpg(process.process.pid, signal.SIGKILL)
    process.process.wait(30)


def _kill_victim(
    victim: str, process: KillableProcess, source: psycopg.Connection[tuple[object, ...]], rng: random.Random
) -> bool:
    """Kill the victim as soon as it exists; return whether it was killed during the run."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while process.outcomes.empty() and process.process.poll() is None and time.monotonic() < deadline:
        if VICTIMS[victim](process.process.pid, source, rng):
            return True
        time.sleep(0.02)
    return False
