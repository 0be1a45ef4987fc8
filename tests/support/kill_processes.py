"""Kill a run or one of its processes. Each function returns whether it killed one."""

import os
import random
import signal

import psutil
import psycopg

from synapse_lakehouse.postgres.connection import APPLICATION_NAME


def _kill_group(pid: int, _: object, __: random.Random) -> bool:
    os.killpg(pid, signal.SIGKILL)
    return True


def _kill_driver(pid: int, _: object, chance: random.Random) -> bool:
    return _kill(_find(pid, "org.apache.spark.deploy.SparkSubmit"), chance)


def _kill_executor(pid: int, _: object, chance: random.Random) -> bool:
    return _kill(_find(pid, "org.apache.spark.executor.CoarseGrainedExecutorBackend"), chance)


def _kill_worker(pid: int, _: object, chance: random.Random) -> bool:
    # A daemon forks the workers, so they have the same command line.
    daemons = _find(pid, "pyspark.daemon")
    return _kill([child for child in daemons if child.parent() in daemons], chance)


def _find(pid: int, program: str) -> list[psutil.Process]:
    """Return the descendants of ``pid`` that run ``program``."""
    try:
        children = psutil.Process(pid).children(recursive=True)
        return [child for child in children if program in child.as_dict(["cmdline"], ad_value=())["cmdline"]]
    except psutil.NoSuchProcess:
        return []


def _kill(processes: list[psutil.Process], chance: random.Random) -> bool:
    if not processes:
        return False
    try:
        chance.choice(processes).kill()
    except psutil.NoSuchProcess:
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
