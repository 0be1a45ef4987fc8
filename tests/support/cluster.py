"""A Spark standalone cluster on loopback, from pyspark's own jars."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.java import runtime

_START_SECONDS = 120
_LOCAL = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}


@dataclass(frozen=True)
class WorkerMachine:
    """How a worker starts: the environment, a prefix of Spark's command, and paths in the worker's file system."""

    name: str
    variables: Mapping[str, str]
    work: str
    secret_file: str
    command: tuple[str, ...] = ()
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class Cluster:
    """A master at ``master`` and workers of one core each. The workers write the files of their apps to ``folder``."""

    master: str
    folder: Path
    workers: tuple[str, ...]

    @property
    def secret_file(self) -> Path:
        """The file with the secret that master, workers and apps share."""
        return self.folder / "spark.secret"

    def variables(self) -> dict[str, str]:
        """Return environment variables for apps: the secret, and the Java options with which executors start fast."""
        options = Settings(_env_file=None).lakehouse_driver_java_options
        (self.folder / "spark-defaults.conf").write_text(f"spark.executor.extraJavaOptions {options}\n")
        return {"SPARK_CONF_DIR": str(self.folder), "LAKEHOUSE_SPARK_SECRET_FILE": str(self.secret_file)}

    def airflow_connection(self) -> dict[str, str]:
        """Return the environment variable with Airflow's connection to the cluster."""
        connection = {"conn_type": "spark", "host": self.master, "extra": {"deploy-mode": "client"}}
        return {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection)}

    def applications(self) -> int:
        """Return the number of Spark apps that had executors on each worker."""
        apps_by_worker = [{path.name for path in (self.folder / worker).glob("app-*")} for worker in self.workers]
        return len(set.intersection(*apps_by_worker))


@contextmanager
def cluster(folder: Path, machines: Sequence[WorkerMachine] = ()) -> Iterator[Cluster]:
    """Run a cluster with its logs in ``folder``. By default it has two workers of this user."""
    secret, variables = folder / "spark.secret", runtime.build_java_environment() | _LOCAL
    secret.touch(mode=0o600)
    secret.write_text(subprocess.check_output([PROJECT_FOLDER / "docker" / "spark-secret.sh"], text=True))
    machines = machines or [
        WorkerMachine(name, variables, str(folder / name), str(secret)) for name in ("one", "two")
    ]  # fmt: skip
    common = ["--webui-port", "0", "--properties-file"]
    with ExitStack() as stack:
        arguments = [*common, str(secret), "--host", "127.0.0.1", "--port", "0"]
        stack.enter_context(_daemon("master.Master", folder / "master.log", variables, arguments))
        master = _wait_for_log(folder / "master.log", r"(spark://127\.0\.0\.1:\d+)")
        for machine in machines:
            resources = ["--cores", "1", "--memory", "1g", "--work-dir", machine.work]
            arguments = [*common, machine.secret_file, "--host", machine.host, *resources, master]
            log = folder / f"{machine.name}.log"
            stack.enter_context(_daemon("worker.Worker", log, machine.variables, arguments, machine.command, secret))
        for machine in machines:
            _wait_for_log(folder / f"{machine.name}.log", "(Successfully registered with master)")
        yield Cluster(master, folder, tuple(machine.name for machine in machines))


@contextmanager
def _daemon(
    name: str,
    log: Path,
    variables: Mapping[str, str],
    arguments: Sequence[str],
    command: Sequence[str] = (),
    secret: Path = Path(os.devnull),
) -> Iterator[None]:
    """Run a Spark daemon in its own process group. ``command`` reads ``secret`` from its standard input."""
    with log.open("wb") as output, secret.open("rb") as secret_input:
        process = subprocess.Popen(
            [*command, f"{variables['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            env=variables, stdin=secret_input, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            cwd=log.parent,
        )  # fmt: skip
    try:
        yield
    finally:
        os.killpg(process.pid, 15)
        process.wait(timeout=30)


def _wait_for_log(log: Path, pattern: str) -> str:
    """Wait for ``pattern`` in a daemon's log, and return its first group."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if match := re.search(pattern, log.read_text()):
            return match[1]
        time.sleep(0.2)
    raise AssertionError(f"{pattern} not in {log.read_text()}")
