"""Java, Spark's jars, the catalogue and the disks of this machine."""

import os
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from synapse_lakehouse import catalogue as declared
from synapse_lakehouse.cli.diagnosis.finding import Finding, Findings, Level
from synapse_lakehouse.embedded import jars as spark_jars
from synapse_lakehouse.embedded import java as spark_java
from synapse_lakehouse.settings import Settings

_LEAST_FREE: Final = 2**30


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
    missing = [one for one in spark_jars.PINNED if not any(settings.lakehouse_home.glob(_pattern(one)))]
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


def disk(settings: Settings, database_bytes: int | None = None) -> Findings:
    """Is there room for a copy of a database of ``database_bytes``, and may we write?"""
    folders = [settings.lakehouse_home]
    if settings.warehouse.startswith("file:"):
        folders.append(Path(urlsplit(settings.warehouse).path))
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


def _pattern(coordinates: str) -> str:
    group, artifact, version = coordinates.split(":")
    return f"spark/*/jars/{group}_{artifact}-{version}.jar"


def _existing(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())
