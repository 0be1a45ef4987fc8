"""The same interval on a Spark standalone cluster: a master and two workers, from pyspark's own jars, on loopback."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from synapse_lakehouse.embedded import java
from synapse_lakehouse.lake import duck
from synapse_lakehouse.settings import Settings
from tests.conftest import Published, lakehouse

START_SECONDS = 120


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


def test_a_cluster_publishes_the_same_content(
    published: Published, new_lake: Callable[..., Settings], master: str, tmp_path: Path
) -> None:
    here, as_of, interval = contents(published.settings)
    (tmp_path / "spark-defaults.conf").write_text("spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1\n")
    connection = json.dumps({"conn_type": "spark", "host": master, "extra": {"deploy-mode": "client"}})
    elsewhere = new_lake(synapse_dsn=published.settings.synapse_dsn, lakehouse_as_of=as_of)
    variables = {"AIRFLOW_CONN_SPARK_DEFAULT": connection, "SPARK_CONF_DIR": str(tmp_path)}

    done = lakehouse(elsewhere, "run", "--date", f"{interval:%Y-%m-%d}", **variables)

    assert done.returncode == 0, done.stdout + done.stderr
    applications = {path.name for worker in ("one", "two") for path in (tmp_path / worker).glob("app-*")}
    assert len(applications) == 5, "the five Spark apps ran on the workers"
    assert contents(elsewhere) == (here, as_of, interval)


def contents(settings: Settings) -> tuple[dict[str, tuple[int, int]], datetime, datetime]:
    """Rows and an order-free hash of every table at the first release, the time it judges by, and its interval."""
    with duck.connect(settings) as connection:
        release = duck.releases(connection, settings)[-1]
        duck.bind(connection, settings, release, release.tables)
        found = {
            name: connection.execute(f"select count(*), sum(hash(t)::hugeint) from {name} t").fetchone()
            for name in release.tables
        }
        ((as_of,),) = connection.execute("select as_of from silver.as_of").fetchall()
    return found, datetime.fromtimestamp(as_of / 1000, UTC), release.interval_start
