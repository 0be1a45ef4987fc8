"""Java, Spark's jars, the catalogue and the disks of this machine."""

import os
import shutil
import stat
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from synapse_lakehouse import catalogue as declared
from synapse_lakehouse import settings_check as configured
from synapse_lakehouse.cli.doctor.finding import Finding, Findings, Level
from synapse_lakehouse.cli.runs import out_of_memory
from synapse_lakehouse.cli.runs.out_of_memory import gibibytes
from synapse_lakehouse.config.settings import Settings, env_file_values, misspelled
from synapse_lakehouse.local import memory as available
from synapse_lakehouse.local import network_environment
from synapse_lakehouse.local.java import jars as spark_jars
from synapse_lakehouse.local.java import runtime as spark_java

_LEAST_FREE: Final = 2**30


def names() -> Findings:
    """Is something set that is no setting?"""
    for name, meant in misspelled([*os.environ, *env_file_values()]).items():
        advice = f"Did you mean {meant}?" if meant else "Remove it."
        yield Finding(
            Level.WARN, "settings", f"{name} is no setting, and changes nothing.", f"{advice} .env.example lists all."
        )


def network() -> Findings:
    """Are there proxy or TLS variables that Airflow cannot use?"""
    for name, reason in network_environment.unusable(os.environ).items():
        message = f"{name} is left out for Airflow and all that it starts: {reason}."
        yield Finding(Level.WARN, "network", message, f"Correct or unset {name}.")


def java() -> Findings:
    """Is there a Java that Spark accepts?"""
    try:
        home = spark_java.home(dict(os.environ))
    except spark_java.JavaError as error:
        yield Finding(Level.FAIL, "Java", str(error))
    else:
        yield Finding(Level.OK, "Java", f"version {spark_java.OLDEST} or later in {home}")


def jars(settings: Settings) -> Findings:
    """Were Spark's jars fetched?"""
    missing = [one for one in spark_jars.locked() if not any(settings.lakehouse_home.glob(_pattern(one)))]
    if missing:
        message = f"Not fetched yet: {', '.join(missing)}."
        yield Finding(
            Level.WARN, "jars", message, "`make run` fetches them, for which Maven Central must be reachable."
        )
    else:
        yield Finding(Level.OK, "jars", "all of Spark's jars are here")


def catalogue() -> Findings:
    """Can the catalogue be read?"""
    try:
        loaded = declared.load()
    except (OSError, KeyError, TypeError, ValueError) as error:
        message = f"{declared.path()} cannot be read: {error}"
        yield Finding(Level.FAIL, "catalogue", message, "Undo the last change of that file.")
    else:
        message = (
            f"{len(loaded.copied())} tables copied, {len(loaded.measured())} counted, {len(loaded.streams)} streams"
        )
        yield Finding(Level.OK, "catalogue", message)


def configuration(settings: Settings) -> Findings:
    """Can what the operator configured be understood?"""
    try:
        loaded = declared.load()
    except (OSError, KeyError, TypeError, ValueError):
        return
    wrong = list(configured.problems(loaded, settings))
    yield from (Finding(Level.FAIL, one.subject, one.message) for one in wrong)
    if not wrong:
        of = f" and in {settings.synapse_config}" if settings.synapse_config else ""
        yield Finding(Level.OK, "configuration", f"writers, retention and compressor are understood as set here{of}")


def memory(settings: Settings) -> Findings:
    """Is there memory for a run?"""
    found, needed = available.memory(), out_of_memory.needed(settings)
    message = (
        f"{gibibytes(found.free)} free of {gibibytes(found.limit)} ({found.source}); a run of the shipped sample needs "
        f"{gibibytes(needed)} with LAKEHOUSE_DRIVER_MEMORY={settings.lakehouse_driver_memory}"
    )
    if found.limit < needed:
        yield Finding(Level.FAIL, "memory", f"{message}.", "Raise the limit, or set a smaller LAKEHOUSE_DRIVER_MEMORY.")
    elif found.free < needed:
        yield Finding(
            Level.WARN, "memory", f"{message}.", "End other programs, or set a smaller LAKEHOUSE_DRIVER_MEMORY."
        )
    else:
        yield Finding(Level.OK, "memory", message)


def disk(settings: Settings, database_bytes: int | None = None) -> Findings:
    """Is there room for a copy of a database of ``database_bytes``, and may we write?"""
    folders = filter(None, [settings.lakehouse_home, _warehouse(settings)])
    for folder in {one.stat().st_dev: one for one in map(_existing, folders)}.values():
        free = shutil.disk_usage(folder).free
        message = f"{free / 2**30:.1f} GiB free under {folder}"
        if not os.access(folder, os.W_OK):
            yield Finding(
                Level.FAIL,
                "disk",
                f"{folder} cannot be written to.",
                "Give this user the right, or set LAKEHOUSE_HOME.",
            )
        elif free < _LEAST_FREE:
            yield Finding(Level.FAIL, "disk", f"Only {message}.", "Free space, or move LAKEHOUSE_HOME.")
        elif database_bytes and free < database_bytes:
            yield Finding(
                Level.WARN,
                "disk",
                f"{message}; Synapse's database takes {database_bytes / 2**30:.1f} GiB.",
                "Parquet is smaller than PostgreSQL's files, but Spark also needs scratch space: better free some.",
            )
        else:
            yield Finding(Level.OK, "disk", message)


def privacy(settings: Settings) -> Findings:
    """Are the messages in the lake for its user's eyes alone?"""
    home = settings.lakehouse_home
    folders = [_warehouse(settings), home / "logs", home / "airflow" / "logs", home / "data_docs"]
    if open_ones := [str(folder) for folder in folders if folder and _is_open(folder)]:
        message = f"Everybody on this machine may read {', '.join(open_ones)}, with what people wrote to each other."
        yield Finding(Level.WARN, "privacy", message, f"chmod -R go-rwx {' '.join(open_ones)}")
    else:
        yield Finding(Level.OK, "privacy", "warehouse, logs and Data Docs are closed to other users of this machine")


def _is_open(folder: Path) -> bool:
    others = [one.stat().st_mode for one in (folder, *folder.parents)] if folder.exists() else [0]
    return bool(others[0] & stat.S_IROTH) and all(mode & stat.S_IXOTH for mode in others)


def _warehouse(settings: Settings) -> Path | None:
    where = urlsplit(settings.warehouse)
    return Path(where.path) if where.scheme == "file" else None


def _pattern(coordinates: str) -> str:
    group, artifact, version = coordinates.split(":")
    return f"spark/*/jars/{group}_{artifact}-{version}.jar"


def _existing(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())
