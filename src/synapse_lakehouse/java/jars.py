"""Install the jars for Spark. Spark resolves their Maven coordinates once, and later runs use the verified files."""

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from synapse_lakehouse import file_lock
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.java import runtime

REQUIRED_PACKAGES: Final = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.postgresql:postgresql:42.7.8",
)
"""Coordinates that every Spark app needs. ``jars.lock`` lists them with their dependencies."""

LOCK_FILE_HEADER: Final = (
    "# SHA-256 and Maven coordinates of every jar that Spark gets beside its own. `make lock-jars` renews this file.\n"
)

RUN_WHEN_RESOLVED: Final = "org.apache.hadoop.util.VersionInfo"
"""The class that spark-submit runs after it resolved jars. It is one of Spark's own, so no unchecked class runs."""

_COORDINATES: Final = r"[^:@,\s]+:[^:@,\s]+:[^:@,\s]+"
_PACKAGE: Final = re.compile(rf"({_COORDINATES})@sha256:([0-9a-f]{{64}})")
_FILE: Final = re.compile(r"([^_]+)_(.+)-(\d.*)\.jar")


class JarError(LakehouseError):
    """A jar could not be downloaded, or is not accepted."""


def read_lock_file() -> dict[str, str]:
    """Return the SHA-256 of each jar in ``jars.lock``, by coordinates."""
    lines = (files("synapse_lakehouse") / "java" / "jars.lock").read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return {coordinates: digest for digest, coordinates in pairs}


def parse_packages(setting: str) -> dict[str, str]:
    """Return the SHA-256 of each jar in LAKEHOUSE_SPARK_PACKAGES, by coordinates.

    :raises JarError: when an entry has another format.
    """
    entries = [entry.strip() for entry in setting.split(",") if entry.strip()]
    for entry in entries:
        if not _PACKAGE.fullmatch(entry):
            raise JarError(
                f"LAKEHOUSE_SPARK_PACKAGES has {entry!r}, which is not of the form group:artifact:version@sha256:… "
                "with the 64 hexadecimal digits that `sha256sum` prints for the jar. Separate several entries by "
                "commas."
            )
    return dict(match.groups() for match in map(_PACKAGE.fullmatch, entries) if match)  # type: ignore[misc]


def install_jars(settings: Settings) -> list[Path]:
    """Return the paths of all jars for Spark. Missing jars are downloaded first.

    :raises JarError: when LAKEHOUSE_SPARK_PACKAGES is invalid, or for the reasons of :func:`install_accepted_jars`.
    """
    further = parse_packages(settings.lakehouse_spark_packages)
    return install_accepted_jars(
        settings.lakehouse_home / "spark", [*REQUIRED_PACKAGES, *further], read_lock_file() | further
    )


def install_accepted_jars(folder: Path, packages: Sequence[str], accepted: Mapping[str, str]) -> list[Path]:
    """Return the paths of the jars ``accepted``, in their own folder in ``folder``. Missing jars are downloaded first.

    :param packages: coordinates to resolve. ``accepted`` contains them and their dependencies.
    :param accepted: coordinates and SHA-256 of each jar.
    :raises JarError: when Maven's repository cannot be reached, or a resolved jar is not in ``accepted``.
    """
    folder /= hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    if _find_missing(folder, accepted):
        with file_lock.exclusive_lock(folder / "fetch.lock"):
            if missing := _find_missing(folder, accepted):
                output = resolve_packages(folder, packages)
                _refuse_unaccepted(folder, accepted)
                if missing := _find_missing(folder, accepted):
                    raise JarError(
                        f"Spark could not fetch {', '.join(missing)}. Check that Maven Central can be reached. "
                        f"The resolver reports:\n{output[-2000:]}"
                    )
    _refuse_unaccepted(folder, accepted)
    for coordinates, digest in accepted.items():
        path = _jar_path(folder, coordinates)
        if (actual := _compute_digest(path)) != digest:
            raise JarError(
                f"{coordinates} has the SHA-256 {actual} instead of {digest}. The file is damaged, or it is not the "
                f"accepted file. Delete {path} and try again."
            )
    return sorted(_jar_path(folder, coordinates) for coordinates in accepted)


def resolve_packages(folder: Path, packages: Sequence[str]) -> str:
    """Let Spark resolve ``packages`` into ``folder``/jars without a check; return the resolver's output."""
    spark_submit = Path(sys.executable).with_name("spark-submit")
    process = subprocess.run(
        [spark_submit, "--master", "local[1]", "--packages", ",".join(packages), "--conf",
         f"spark.jars.ivy={folder}", "--class", RUN_WHEN_RESOLVED, "spark-internal"],
        capture_output=True, text=True, errors="replace", env=runtime.build_java_environment(), check=False,
    )  # fmt: skip
    return process.stderr


def list_resolved_jars(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each jar that :func:`resolve_packages` put into ``folder``, by coordinates."""
    return {_parse_coordinates(path): _compute_digest(path) for path in sorted((folder / "jars").glob("*.jar"))}


def _refuse_unaccepted(folder: Path, accepted: Iterable[str]) -> None:
    accepted_paths = {_jar_path(folder, coordinates) for coordinates in accepted}
    if others := [path for path in sorted((folder / "jars").glob("*.jar")) if path not in accepted_paths]:
        entries = ", ".join(f"{_parse_coordinates(path)}@sha256:{_compute_digest(path)}" for path in others)
        raise JarError(
            f"The packages need jars that are not accepted: {entries}. If you trust these jars, add them to "
            f"LAKEHOUSE_SPARK_PACKAGES. Otherwise remove the package that needs them, and delete {folder}."
        )


def _find_missing(folder: Path, coordinates: Iterable[str]) -> list[str]:
    return [entry for entry in coordinates if not _jar_path(folder, entry).exists()]


def _jar_path(folder: Path, coordinates: str) -> Path:
    group, artifact, version = coordinates.split(":")
    return folder / "jars" / f"{group}_{artifact}-{version}.jar"


def _parse_coordinates(path: Path) -> str:
    match = _FILE.fullmatch(path.name)
    return ":".join(match.groups()) if match else path.name


def _compute_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
