"""Run a program as a second user of this machine."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

NAME = "lakehouse-stranger"


@dataclass(frozen=True)
class Stranger:
    """A running ``second_user.py``."""

    process: subprocess.Popen[str]

    def request(self, action: str, *arguments: object) -> Any:
        """Execute a request as the second user; return its result."""
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps([action, *arguments]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


@contextmanager
def stranger() -> Iterator[Stranger]:
    """Create a second user and run its program. Delete the user at the end. Requires root."""
    assert os.geteuid() == 0, "only root can act as another user"
    subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", NAME], check=True)
    # The environment may be below a folder that only root can enter.
    spark = Path(tempfile.mkdtemp(prefix="stranger-spark-"))
    try:
        spark.chmod(0o755)
        _copy(Path(str(pyspark.__file__)).parent, spark / "pyspark")
        process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("second_user.py"), str(pwd.getpwnam(NAME).pw_uid)],
            env={"PATH": os.environ["PATH"], "SPARK_HOME": str(spark / "pyspark")}, cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        with process:
            yield Stranger(process)
    finally:
        _end_processes(pwd.getpwnam(NAME).pw_uid)
        shutil.rmtree(spark)
        subprocess.run(["userdel", NAME], check=True)


def _end_processes(uid: int) -> None:
    """Kill the user's JVM, which can still run after the program that started it."""
    deadline = time.monotonic() + 30
    while running := [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is_owner(entry, uid)]:
        assert time.monotonic() < deadline, f"processes of {NAME} do not end: {running}"
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)
        time.sleep(0.1)


def _is_owner(process: Path, uid: int) -> bool:
    with suppress(OSError):
        return process.stat().st_uid == uid
    return False


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
