"""The same interval on a Spark standalone cluster: a master and two workers, from pyspark's own jars, on loopback."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.embedded import java
from synapse_lakehouse.lake import duck, tables
from synapse_lakehouse.lake.catalog import pyiceberg_catalog
from synapse_lakehouse.lake.release import Release
from synapse_lakehouse.run import Run
from synapse_lakehouse.settings import Settings
from tests.conftest import HarshLake, Published, lakehouse, run_app

START_SECONDS = 120
RUN = Run("test_cluster", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))


@contextmanager
def daemon(name: str, log: Path, *arguments: str) -> Iterator[None]:
    """A Spark daemon in a process group of its own, gone when the context ends."""
    variables = java.environment() | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [f"{variables['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd=log.parent,
        )  # fmt: skip
    try:
        yield
    finally:
        os.killpg(process.pid, 15)
        process.wait(timeout=30)


def said(log: Path, pattern: str) -> str:
    """What a daemon's log says of ``pattern``, waiting for it."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text()):
            return found[1]
        time.sleep(0.2)
    raise AssertionError(f"{pattern} not in {log.read_text()}")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Address of a standalone master with two workers of one core each."""
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as stack:
        stack.enter_context(daemon("master.Master", tmp_path / "master.log", *common, "--port", "0"))
        address = said(tmp_path / "master.log", r"(spark://127\.0\.0\.1:\d+)")
        for worker in ("one", "two"):
            log = tmp_path / f"{worker}.log"
            resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / worker)]
            stack.enter_context(daemon("worker.Worker", log, *common, *resources, address))
            said(log, "(Successfully registered with master)")
        yield address


@pytest.fixture
def executors(tmp_path: Path) -> dict[str, str]:
    """Variables with which Spark's executors start as quickly as drivers."""
    options = Settings(_env_file=None).lakehouse_driver_java_options
    (tmp_path / "spark-defaults.conf").write_text(f"spark.executor.extraJavaOptions {options}\n")
    return {"SPARK_CONF_DIR": str(tmp_path)}


def applications(folder: Path) -> set[str]:
    """Names of the Spark apps that had executors on the workers of :func:`master`."""
    return {path.name for worker in ("one", "two") for path in (folder / worker).glob("app-*")}


def test_workers_copy_the_same_content(
    harsh: HarshLake, new_lake: Callable[..., Settings], master: str, executors: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = new_lake(synapse_dsn=harsh.settings.synapse_dsn)
    catalog = pyiceberg_catalog(elsewhere)
    tables.ensure(catalog, catalogue.load())

    for app in ("snapshot_tables", "resolve_state"):
        done = run_app(app, elsewhere, RUN, SPARK_MASTER=master, **executors)
        assert done.returncode == 0, done.stdout + done.stderr

    assert len(applications(tmp_path)) == 2
    names = [f"bronze.{table.name}" for table in catalogue.load().copied()]
    names += [f"silver.{table.name}" for table in catalogue.resolved_state()]
    there, here = (
        {name: lake.load_table(name).refs()[run.branch].snapshot_id for name in names}
        for lake, run in ((catalog, RUN), (pyiceberg_catalog(harsh.settings), harsh.run))
    )
    assert contents(elsewhere, there) == contents(harsh.settings, here)


@pytest.mark.heavy
def test_a_cluster_publishes_the_same_content(
    published: Published, new_lake: Callable[..., Settings], master: str, executors: dict[str, str], tmp_path: Path
) -> None:
    release = release_of(published.settings)
    here = contents(published.settings, release.tables)
    connection = json.dumps({"conn_type": "spark", "host": master, "extra": {"deploy-mode": "client"}})
    with duck.connect(published.settings) as lake:
        duck.bind(lake, published.settings, release, ["silver.as_of"])
        ((as_of,),) = lake.execute("select as_of from silver.as_of").fetchall()
    elsewhere = new_lake(
        synapse_dsn=published.settings.synapse_dsn, lakehouse_as_of=datetime.fromtimestamp(as_of / 1000, UTC)
    )

    done = lakehouse(
        elsewhere, "run", "--date", f"{release.interval_start:%Y-%m-%d}", AIRFLOW_CONN_SPARK_DEFAULT=connection,
        **executors,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(applications(tmp_path)) == 5, "the five Spark apps ran on the workers"
    there = release_of(elsewhere)
    assert there.interval_start == release.interval_start
    assert contents(elsewhere, there.tables) == here


def release_of(settings: Settings) -> Release:
    """The first release of a lake."""
    with duck.connect(settings) as connection:
        return duck.releases(connection, settings)[-1]


def contents(settings: Settings, snapshots: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Rows and an order-free hash of tables at snapshots."""
    known = duck.entries(settings)
    with duck.connect(settings) as connection:
        return {
            name: connection.execute(
                f"select count(*), sum(hash(t)::hugeint) from {duck.scan(known[name].location, snapshot)} t"
            ).fetchone()
            for name, snapshot in snapshots.items()
        }
