"""Spark workers of another user, with their own environment and file system: they share no folder with the driver.

Each worker has a mount namespace with the system's files, its environment at ``/opt``, where the driver has none, and
its own ``/tmp`` with mode 0700. The namespace contains neither the checkout nor the driver's ``/tmp``.
"""

import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sample.processes import run
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.java import runtime
from tests.support.cluster import WorkerMachine

PYTHON: Final = "/opt/bin/python"
"""Path of Python in the workers' file system."""
USER: Final = "nobody"
_ENVIRONMENT: Final = PROJECT_FOLDER / ".lakehouse" / "worker-venv"
_ENTER: Final = """
mount --bind "$1" /opt; mount --bind "$2" /tmp; mount -t tmpfs -o mode=0700 none "$3"; shift 3
install -m 600 -o nobody -g nogroup /dev/stdin /tmp/spark.secret
cd /tmp
exec setpriv --reuid=nobody --regid=nogroup --clear-groups --no-new-privs --pdeathsig TERM "$@"
"""
"""Program of the new namespace: mount environment and /tmp, hide the checkout, store the secret, drop root."""


def remote_machines(folder: Path, names: tuple[str, ...], variables: Mapping[str, str]) -> list[WorkerMachine]:
    """Return workers whose ``/tmp`` is ``folder``/``name``, with the environment ``variables``. Requires root."""
    assert os.geteuid() == 0, "only root can start processes of another user"
    environment = _install_environment()
    # Each worker gets its own host: executors of the same host read each other's shuffle files from the disk.
    hosts = [f"127.0.0.{number}" for number in range(2, 2 + len(names))]
    return [_machine(folder / name, host, environment, variables) for name, host in zip(names, hosts, strict=True)]


def _machine(folder: Path, host: str, environment: Path, variables: Mapping[str, str]) -> WorkerMachine:
    folder.mkdir(mode=0o700)
    shutil.chown(folder, USER, "nogroup")
    enter = ["unshare", "--mount", "--propagation", "private", "sh", "-eu", "-c", _ENTER, "sh"]
    (packages,) = environment.glob("lib/python3.*/site-packages")
    own_variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "JAVA_HOME": str(runtime.find_java_home(dict(os.environ))),
        "SPARK_HOME": f"/opt/{packages.relative_to(environment)}/pyspark",
        "SPARK_LOCAL_IP": host,
        "SPARK_NO_DAEMONIZE": "1",
        "LAKEHOUSE_HOME": "/tmp/lakehouse",
    }
    return WorkerMachine(
        name=folder.name,
        variables={**own_variables, **variables},
        work="/tmp",
        secret_file="/tmp/spark.secret",
        command=(*enter, str(environment), str(folder), str(PROJECT_FOLDER)),
        host=host,
    )


def _install_environment() -> Path:
    """Install the locked packages and this checkout's package with the system's Python, as an operator does."""
    _ENVIRONMENT.parent.mkdir(exist_ok=True)
    with _ENVIRONMENT.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        uv = shutil.which("uv") or PROJECT_FOLDER / ".tools" / "uv" / "bin" / "uv"
        command = ["env", f"UV_PROJECT_ENVIRONMENT={_ENVIRONMENT}", uv, "sync", "--project", PROJECT_FOLDER, "--quiet"]
        options = ["--locked", "--no-editable", "--no-dev", "--python", "/usr/bin/python3"]
        run([*command, *options, "--reinstall-package", "synapse-lakehouse"], "Installing the workers' environment")
    return _ENVIRONMENT
