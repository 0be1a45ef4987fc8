"""Kill a run, or one of its processes."""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psycopg

from synapse_lakehouse.postgres.connection import APPLICATION_NAME


def _kill_group(pid: int, _: object, __: random.Random) -> bool:
    os.killpg(pid, signal.SIGKILL)
    return True


def _kill_driver(pid: int, _: object, chance: random.Random) -> bool:
    return _kill(
        [child.pid for child in _descendants(pid) if "org.apache.spark.deploy.SparkSubmit" in child.command], chance
    )


def _kill_executor(pid: int, _: object, chance: random.Random) -> bool:
    executor = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    return _kill([child.pid for child in _descendants(pid) if executor in child.command], chance)


def _kill_worker(pid: int, _: object, chance: random.Random) -> bool:
    # A daemon forks the workers, so they have the same command line.
    daemons = [child for child in _descendants(pid) if "pyspark.daemon" in child.command]
    return _kill([child.pid for child in daemons if child.parent in {other.pid for other in daemons}], chance)


def _kill(pids: list[int], chance: random.Random) -> bool:
    if not pids:
        return False
    try:
        os.kill(chance.choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _kill_backend(_: int, source: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> bool:
    rows = source.execute(
        "select pid from pg_stat_activity where application_name = %s and datname = current_database() order by pid",
        [APPLICATION_NAME],
    ).fetchall()
    if not rows:
        return False
    return source.execute("select pg_terminate_backend(%s)", [chance.choice(rows)[0]]).fetchone() == (True,)


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
    with suppress(OSError):  # The process may end meanwhile.
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, _read(task).split()):
                yield Child(child, pid, _read(Path(f"/proc/{child}/cmdline")).split("\0"))
                yield from _descendants(child)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
