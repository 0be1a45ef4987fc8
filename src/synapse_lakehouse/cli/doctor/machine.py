"""Check settings, Java, Spark's jars, the catalogue, memory and disks of this machine."""

import os
import shutil
import stat
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from synapse_lakehouse import catalogue as declared
from synapse_lakehouse import configuration_problems
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.cli.runs import out_of_memory
from synapse_lakehouse.cli.runs.out_of_memory import format_gibibytes
from synapse_lakehouse.config.env_file import read_env_file
from synapse_lakehouse.config.misspelled_settings import find_misspelled_names
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.java import jars as spark_jars
from synapse_lakehouse.java import runtime as spark_java
from synapse_lakehouse.local import memory as available
from synapse_lakehouse.local import network_environment
from synapse_lakehouse.streams.positions.configured_writers import read_configured_writers

_MIN_FREE_BYTES: Final = 2**30


def check_setting_names() -> Findings:
    """Check for misspelled names of settings."""
    for name, correct in find_misspelled_names([*os.environ, *read_env_file()]).items():
        advice = f"Did you mean {correct}?" if correct else "Remove it."
        yield DoctorFinding(
            FindingLevel.WARN,
            "settings",
            f"{name} is not a setting and has no effect.",
            f"{advice} .env.example lists all settings.",
        )


def check_network() -> Findings:
    """Check for proxy and TLS variables that Airflow cannot use."""
    for name, reason in network_environment.find_unusable_variables(os.environ).items():
        message = f"Airflow and its processes do not use {name}: {reason}."
        yield DoctorFinding(FindingLevel.WARN, "network", message, f"Correct or unset {name}.")


def check_java() -> Findings:
    """Check for a Java version that Spark supports."""
    try:
        home = spark_java.find_java_home(dict(os.environ))
    except spark_java.JavaError as error:
        yield DoctorFinding(FindingLevel.FAIL, "Java", str(error))
    else:
        yield DoctorFinding(FindingLevel.OK, "Java", f"version {spark_java.OLDEST_JAVA} or later in {home}")


def check_jars(settings: Settings) -> Findings:
    """Check that Spark's jars were downloaded."""
    missing = [jar for jar in spark_jars.read_lock_file() if not any(settings.lakehouse_home.glob(_pattern(jar)))]
    if missing:
        message = f"Not downloaded yet: {', '.join(missing)}."
        yield DoctorFinding(FindingLevel.WARN, "jars", message, "`make run` downloads them from Maven Central.")
    else:
        yield DoctorFinding(FindingLevel.OK, "jars", "all of Spark's jars are present")


def check_catalogue() -> Findings:
    """Check that the catalogue can be read."""
    try:
        loaded = declared.load_catalogue()
    except (OSError, KeyError, TypeError, ValueError) as error:
        message = f"{declared.find_sources_file()} cannot be read: {error}"
        yield DoctorFinding(FindingLevel.FAIL, "catalogue", message, "Revert the last change of that file.")
    else:
        message = (
            f"{len(loaded.copied_tables())} tables copied, {len(loaded.measured_tables())} counted, "
            f"{len(loaded.streams)} streams"
        )
        yield DoctorFinding(FindingLevel.OK, "catalogue", message)


def check_configuration(settings: Settings) -> Findings:
    """Check the settings and homeserver.yaml."""
    try:
        loaded = declared.load_catalogue()
    except (OSError, KeyError, TypeError, ValueError):
        return
    problems = list(configuration_problems.find_problems(loaded, settings))
    yield from (DoctorFinding(FindingLevel.FAIL, problem.subject, problem.message) for problem in problems)
    if problems:
        return
    source = f", also in {settings.synapse_config}" if settings.synapse_config else ""
    message = f"settings of writers, retention and compressor are valid{source}"
    yield DoctorFinding(FindingLevel.OK, "configuration", message)
    if settings.synapse_dsn:
        yield from _check_writers(loaded, settings)


def _check_writers(loaded: declared.Catalogue, settings: Settings) -> Findings:
    """Warn of streams without configured writers, which :class:`ExpectNoProvisionalBound` reports after a run.

    A Synapse of a single process needs a configuration, too: the database does not show that there is no worker.
    """
    configured = read_configured_writers(loaded, settings.lakehouse_stream_writers, settings.synapse_config)
    learned = [stream.name for stream in loaded.streams if stream.stream_positions and stream.name not in configured]
    if learned:
        message = (
            f"The writers of {len(learned)} streams are not configured, so they are learned from the data, and the "
            f"safe bounds are provisional: {', '.join(learned)}."
        )
        advice = "Set SYNAPSE_CONFIG to homeserver.yaml, also for a single process, or set LAKEHOUSE_STREAM_WRITERS."
        yield DoctorFinding(FindingLevel.WARN, "stream writers", message, advice)


def check_memory(settings: Settings) -> Findings:
    """Check the memory for a run."""
    memory, needed = available.read_memory(), out_of_memory.required_bytes(settings)
    message = (
        f"{format_gibibytes(memory.free)} free of {format_gibibytes(memory.limit)} ({memory.source}); a run of the "
        f"shipped sample needs {format_gibibytes(needed)} with "
        f"LAKEHOUSE_DRIVER_MEMORY={settings.lakehouse_driver_memory}"
    )
    if memory.limit < needed:
        yield DoctorFinding(
            FindingLevel.FAIL, "memory", f"{message}.", "Raise the limit, or set a smaller LAKEHOUSE_DRIVER_MEMORY."
        )
    elif memory.free < needed:
        yield DoctorFinding(
            FindingLevel.WARN, "memory", f"{message}.", "Stop other programs, or set a smaller LAKEHOUSE_DRIVER_MEMORY."
        )
    else:
        yield DoctorFinding(FindingLevel.OK, "memory", message)


def check_disk(settings: Settings, database_bytes: int | None = None) -> Findings:
    """Check free space for a copy of a database of ``database_bytes``, and write access."""
    folders = filter(None, [settings.lakehouse_home, _warehouse(settings)])
    for folder in {folder.stat().st_dev: folder for folder in map(_existing_parent, folders)}.values():
        free = shutil.disk_usage(folder).free
        message = f"{free / 2**30:.1f} GiB free under {folder}"
        if not os.access(folder, os.W_OK):
            yield DoctorFinding(
                FindingLevel.FAIL,
                "disk",
                f"{folder} is not writable.",
                "Give this user write access, or set LAKEHOUSE_HOME to another folder.",
            )
        elif free < _MIN_FREE_BYTES:
            yield DoctorFinding(
                FindingLevel.FAIL, "disk", f"Only {message}.", "Free disk space, or move LAKEHOUSE_HOME."
            )
        elif database_bytes and free < database_bytes:
            yield DoctorFinding(
                FindingLevel.WARN,
                "disk",
                f"{message}; Synapse's database takes {database_bytes / 2**30:.1f} GiB.",
                "Parquet is smaller than PostgreSQL's files, but Spark also needs scratch space. Free disk space.",
            )
        else:
            yield DoctorFinding(FindingLevel.OK, "disk", message)


def check_privacy(settings: Settings) -> Findings:
    """Check that other users of this machine cannot read the lake."""
    home = settings.lakehouse_home
    folders = [_warehouse(settings), home / "logs", home / "airflow" / "logs", settings.lake_folder / "data_docs"]
    if open_folders := [str(folder) for folder in folders if folder and _is_open(folder)]:
        message = f"All users of this machine can read {', '.join(open_folders)}, which contain private messages."
        yield DoctorFinding(FindingLevel.WARN, "privacy", message, f"chmod -R go-rwx {' '.join(open_folders)}")
    else:
        yield DoctorFinding(
            FindingLevel.OK, "privacy", "other users of this machine cannot read warehouse, logs and Data Docs"
        )


def _is_open(folder: Path) -> bool:
    modes = [path.stat().st_mode for path in (folder, *folder.parents)] if folder.exists() else [0]
    return bool(modes[0] & stat.S_IROTH) and all(mode & stat.S_IXOTH for mode in modes)


def _warehouse(settings: Settings) -> Path | None:
    uri = urlsplit(settings.warehouse)
    return Path(uri.path) if uri.scheme == "file" else None


def _pattern(coordinates: str) -> str:
    group, artifact, version = coordinates.split(":")
    return f"spark/*/jars/{group}_{artifact}-{version}.jar"


def _existing_parent(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())
