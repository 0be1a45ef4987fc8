"""Runs are killed at random instants, and whatever they leave behind, the next one publishes what the source holds."""

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
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, NamedTuple
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
from synapse_lakehouse.iceberg.write.branches import load_branched_tables
from synapse_lakehouse.postgres.connection import APPLICATION_NAME
from tests.conftest import environment
from tests.support.incremental_lake import AdvancingLake, advancing
from tests.support.killable_run import few_tables

pytestmark = pytest.mark.heavy

SEED = int(os.environ.get("KILLS_SEED") or time.time())
KILLS = 52
KILLS_BETWEEN_CHECKS = 5
AIMED_EVERY = 2 * (KILLS_BETWEEN_CHECKS + 1)
"""Of so many runs, one dies while it copies a whole table in chunks, so that the next one has a rest to copy."""
MOST_MISSED = 20
LEASE_SECONDS = 10
PATIENCE_SECONDS = 300.0
CLUSTER = {"SPARK_MASTER": "local-cluster[1,2,1024]", "SPARK_LOCAL_IP": "127.0.0.1"}
"""An executor of its own beside the driver, so that each can be killed alone."""

IN_EVERY_ROW = "update event_json set format_version = format_version"
CHANGES = (
    IN_EVERY_ROW,
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
class Mortal:
    """The process that runs are killed in (``tests.support.killable_run``): its lines as they come, None at its end."""

    process: subprocess.Popen[str]
    said: "queue.Queue[str | None]"

    def expect(self, seconds: float = PATIENCE_SECONDS) -> str | None:
        """The next outcome; None if it died."""
        return self.said.get(timeout=seconds)

    def run(self, number: int) -> None:
        """Start a run."""
        assert self.process.stdin
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()


def test_killed_runs_leave_nothing_that_the_next_one_cannot_mend(
    source_copy: str, new_lake: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"KILLS_SEED={SEED}")
    chance = random.Random(SEED)
    settings = new_lake(synapse_dsn=source_copy, lakehouse_lease_seconds=LEASE_SECONDS)
    few = few_tables()
    monkeypatch.setattr(catalogue, "load_catalogue", lambda: few)
    lake = AdvancingLake(settings)
    runs, killed, duration = 0, dict.fromkeys(VICTIMS, 0), 20.0
    mortal, missed = None, 0
    with psycopg.connect(source_copy, autocommit=True) as source, (tmp_path / "log").open("w") as log:
        source.execute("set session_replication_role = replica")
        while sum(killed.values()) < KILLS:
            if mortal is None:
                mortal = _born(settings, log)
            spared = runs % (KILLS_BETWEEN_CHECKS + 1) == 0
            aimed = runs % AIMED_EVERY == KILLS_BETWEEN_CHECKS
            for change in [IN_EVERY_ROW] if aimed else chance.sample(CHANGES, chance.randint(1, 3)):
                source.execute(change.encode())
            runs += 1
            began = time.monotonic()
            mortal.run(runs)
            if spared:
                outcome = mortal.expect()
                assert outcome == "done", (tmp_path / "log").read_text()[-5000:]
                duration = time.monotonic() - began
                _require_clean(lake)
                print(f"run {runs}: equal to the source after {sum(killed.values())} kills, {duration:.1f} s")
                continue
            victim = "group" if aimed else min(VICTIMS, key=lambda one: (killed[one], chance.random()))
            if aimed:
                _await_chunk(lake, runs, mortal)
            else:
                time.sleep(chance.uniform(0, 0.9 * duration))
            was_killed = _killed(victim, mortal, source, chance)
            killed[victim] += was_killed
            missed = 0 if was_killed else missed + 1
            assert missed < MOST_MISSED, f"in {missed} runs there was no {victim} to kill"
            at = time.monotonic() - began
            outcome = mortal.expect()
            print(f"run {runs}: {victim}{'' if was_killed else ' not'} killed after {at:.1f} s: {outcome or 'died'}")
            if outcome and not was_killed:
                duration = at
            if outcome is None or (was_killed and victim in ("group", "driver")):
                _end(mortal)
                mortal = None
        if mortal:
            _end(mortal)

    with advancing(settings) as last:
        last.runs = runs
        last.advance()
        assert last.departures() == {}
        extents = {row["extent"] for row in _ledger(last)}
        assert {"full", "changed", "none", "resumed"} <= extents
        monkeypatch.setattr(maintenance, "UNFINISHED", timedelta(0))
        last.settings = settings.model_copy(update={"lakehouse_erasure_days": 0})
        app = last.app()
        # The last run that was killed may have held it.
        app.lease.acquire(2 * LEASE_SECONDS)
        runpy.run_path(str(PROJECT_FOLDER / "spark_apps" / "maintain_lake.py"))["maintain_lake"](app)
        assert _orphans(app.catalog) == set()
        assert _branches(app.catalog) == set()
        assert last.departures() == {}


def _await_chunk(lake: AdvancingLake, run: int, mortal: Mortal) -> None:
    """Until the run has a part of ``event_json`` on its branch."""
    lake.runs = run - 1
    app, deadline = lake.app(), time.monotonic() + PATIENCE_SECONDS
    while mortal.said.empty() and time.monotonic() < deadline:
        table = app.catalog.load_table("bronze.event_json")
        head, main = table.refs().get(app.run.branch), table.current_snapshot()
        if head and main and head.snapshot_id != main.snapshot_id:
            return
        time.sleep(0.02)


def _require_clean(lake: AdvancingLake) -> None:
    """What readers see is the source, main is what they see, and no crashed run left a branch."""
    assert lake.departures() == {}
    catalog = lake.app().catalog
    latest = store.read_releases(catalog)[-1]
    heads = {
        ".".join(table.name()): head.snapshot_id
        for table in load_branched_tables(catalog)
        if (head := table.current_snapshot())
    }
    assert heads == dict(latest.tables)
    assert _branches(catalog) == set()


def _ledger(lake: AdvancingLake) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = lake.app().catalog.load_table("audit.ledger").scan().to_arrow().to_pylist()
    return rows


def _branches(catalog: Catalog) -> set[str]:
    return {ref for table in load_branched_tables(catalog) for ref in table.refs() if is_run_branch(ref)}


def _orphans(catalog: Catalog) -> set[Path]:
    """Files in the folders of tables that no table refers to."""
    found: set[Path] = set()
    for name in (name for schema in catalog.list_namespaces() for name in catalog.list_tables(schema)):
        table = catalog.load_table(name)
        folder = _path(table.location())
        found |= {path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".crc")}
        found -= set(_referred(table))
    return {path for path in found if not path.name.startswith("version-hint")}


def _referred(table: Table) -> Iterator[Path]:
    yield _path(table.metadata_location)
    yield from (_path(entry.metadata_file) for entry in table.metadata.metadata_log)
    for snapshot in table.snapshots():
        yield _path(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            yield _path(manifest.manifest_path)
            yield from (_path(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io, False))


def _path(location: str) -> Path:
    return Path(urlsplit(location).path)


def _born(settings: Settings, log: IO[str]) -> Mortal:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.killable_run"],
        env=environment(settings) | CLUSTER | _secret(settings) | {
            "PYTHONPATH": f"{PROJECT_FOLDER}:{PROJECT_FOLDER / 'src'}"
        },
        cwd=settings.lakehouse_home,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
    )  # fmt: skip
    said: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        assert process.stdout
        for line in process.stdout:
            if line.strip() in ("ready", "done"):
                said.put(line.strip())
        said.put(None)

    threading.Thread(target=listen, daemon=True).start()
    mortal = Mortal(process, said)
    assert mortal.expect() == "ready"
    return mortal


def _secret(settings: Settings) -> dict[str, str]:
    """What a driver with executors of its own needs to know."""
    file = settings.lakehouse_home / "spark.secret"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(subprocess.check_output([PROJECT_FOLDER / "docker" / "spark-secret.sh"], text=True))
    return {"LAKEHOUSE_SPARK_SECRET_FILE": str(file)}


def _end(mortal: Mortal) -> None:
    if mortal.process.poll() is None:
        os.killpg(mortal.process.pid, signal.SIGKILL)
    mortal.process.wait(30)


def _killed(victim: str, mortal: Mortal, source: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> bool:
    """Kill the victim as soon as there is one; whether it was killed while the run was at work."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while mortal.said.empty() and mortal.process.poll() is None and time.monotonic() < deadline:
        if VICTIMS[victim](mortal.process.pid, source, chance):
            return True
        time.sleep(0.02)
    return False


def _kill_group(pid: int, _: object, __: random.Random) -> bool:
    os.killpg(pid, signal.SIGKILL)
    return True


def _kill_driver(pid: int, _: object, chance: random.Random) -> bool:
    return _kill([one.pid for one in _descendants(pid) if "org.apache.spark.deploy.SparkSubmit" in one.command], chance)


def _kill_executor(pid: int, _: object, chance: random.Random) -> bool:
    executor = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    return _kill([one.pid for one in _descendants(pid) if executor in one.command], chance)


def _kill_worker(pid: int, _: object, chance: random.Random) -> bool:
    # A daemon forks the workers, which look like it.
    daemons = [one for one in _descendants(pid) if "synapse_lakehouse.iceberg.spark.worker_daemon" in one.command]
    return _kill([one.pid for one in daemons if one.parent in {other.pid for other in daemons}], chance)


def _kill(pids: list[int], chance: random.Random) -> bool:
    if not pids:
        return False
    try:
        os.kill(chance.choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _kill_backend(_: int, source: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> bool:
    found = source.execute(
        "select pid from pg_stat_activity where application_name = %s and datname = current_database() order by pid",
        [APPLICATION_NAME],
    ).fetchall()
    if not found:
        return False
    return source.execute("select pg_terminate_backend(%s)", [chance.choice(found)[0]]).fetchone() == (True,)


VICTIMS = {
    "group": _kill_group,
    "driver": _kill_driver,
    "executor": _kill_executor,
    "worker": _kill_worker,
    "backend": _kill_backend,
}


class Child(NamedTuple):
    """A process, its parent and its command line."""

    pid: int
    parent: int
    command: list[str]


def _descendants(pid: int) -> Iterator[Child]:
    with suppress(OSError):  # It may end while it is looked at.
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, _read(task).split()):
                yield Child(child, pid, _read(Path(f"/proc/{child}/cmdline")).split("\0"))
                yield from _descendants(child)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
