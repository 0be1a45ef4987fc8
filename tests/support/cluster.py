"""A Spark standalone cluster on loopback, from pyspark's own jars."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.java import runtime

_START_SECONDS = 120
_WORKERS = ("one", "two")


@dataclass(frozen=True)
class Cluster:
    """A master at ``master`` with two workers of one core each, which write the files of their apps to ``folder``."""

    master: str
    folder: Path

    @property
    def secret_file(self) -> Path:
        """The file with the secret of master, workers and apps."""
        return self.folder / "spark.secret"

    def variables(self) -> dict[str, str]:
        """Environment variables with which apps have the secret, and executors start as quickly as drivers."""
        options = Settings(_env_file=None).lakehouse_driver_java_options
        (self.folder / "spark-defaults.conf").write_text(f"spark.executor.extraJavaOptions {options}\n")
        return {"SPARK_CONF_DIR": str(self.folder), "LAKEHOUSE_SPARK_SECRET_FILE": str(self.secret_file)}

    def applications(self) -> int:
        """Number of Spark apps that had executors on each worker."""
        actual = [{path.name for path in (self.folder / worker).glob("app-*")} for worker in _WORKERS]
        return len(set.intersection(*actual))


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster with its logs in ``folder``."""
    spark = Cluster("", folder)
    spark.secret_file.touch(mode=0o600)
    spark.secret_file.write_text(subprocess.check_output([PROJECT_FOLDER / "docker" / "spark-secret.sh"], text=True))
    common = ["--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(spark.secret_file)]
    with ExitStack() as stack:
        stack.enter_context(_daemon("master.Master", folder / "master.log", *common, "--port", "0"))
        master = _said(folder / "master.log", r"(spark://127\.0\.0\.1:\d+)")
        logs = [folder / f"{worker}.log" for worker in _WORKERS]
        for worker, log in zip(_WORKERS, logs, strict=True):
            resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / worker)]
            stack.enter_context(_daemon("worker.Worker", log, *common, *resources, master))
        for log in logs:
            _said(log, "(Successfully registered with master)")
        yield replace(spark, master=master)


@contextmanager
def _daemon(name: str, log: Path, *arguments: str) -> Iterator[None]:
    """A Spark daemon in its own process group, stopped at the end of the context."""
    variables = runtime.build_java_environment() | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
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


def _said(log: Path, pattern: str) -> str:
    """Wait for ``pattern`` in a daemon's log, and return the match."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if actual := re.search(pattern, log.read_text()):
            return actual[1]
        time.sleep(0.2)
    raise AssertionError(f"{pattern} not in {log.read_text()}")
