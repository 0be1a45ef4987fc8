"""Jars: Maven coordinates, resolved once by Spark's own resolver and then used from disk."""

import hashlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from synapse_lakehouse.embedded import java, processes
from synapse_lakehouse.settings import Settings

PINNED: Final = {
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0": (
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
    ),
    "org.postgresql:postgresql:42.7.8": "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
}
"""Coordinates and the SHA-256 of the jar that is accepted for each."""


class JarError(RuntimeError):
    """A jar could not be fetched, or is not the one that was pinned."""


def installed(settings: Settings) -> list[Path]:
    """Paths of all jars that Spark gets, fetched first where they are missing.

    :raises JarError: when LAKEHOUSE_SPARK_PACKAGES cannot be understood, Maven's repository cannot be reached or a
        checksum differs.
    """
    wanted = [*PINNED, *_extra(settings.lakehouse_spark_packages)]
    return fetched(settings.lakehouse_home / "spark", wanted, PINNED)


def fetched(folder: Path, wanted: Sequence[str], pinned: Mapping[str, str]) -> list[Path]:
    """Paths of the jars of the coordinates ``wanted``, and of those that they need, in a folder of their own in
    ``folder``; fetched first where they are missing.

    :param pinned: coordinates and the SHA-256 of the jar that is accepted.
    :raises JarError: when Maven's repository cannot be reached or a checksum differs.
    """
    folder /= hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:12]
    if _missing(folder, wanted):
        with processes.alone(folder / "fetch.lock"):
            if _missing(folder, wanted):
                _fetch(folder, wanted)
    for coordinates, accepted in pinned.items():
        found = hashlib.sha256(_path(folder, coordinates).read_bytes()).hexdigest()
        if found != accepted:
            raise JarError(
                f"{coordinates} has the SHA-256 {found}, expected {accepted}: the file is damaged or not the one that "
                f"was reviewed. Delete {_path(folder, coordinates)} and try again."
            )
    return sorted((folder / "jars").glob("*.jar"))


def _extra(setting: str) -> list[str]:
    coordinates = [one.strip() for one in setting.split(",") if one.strip()]
    for one in coordinates:
        parts = one.split(":")
        if len(parts) != 3 or not all(parts):
            raise JarError(
                f"LAKEHOUSE_SPARK_PACKAGES has {one!r}, which is not of the form group:artifact:version, such as "
                "org.apache.iceberg:iceberg-aws-bundle:1.12.0. Separate several by commas."
            )
    return coordinates


def _missing(folder: Path, coordinates: Sequence[str]) -> list[str]:
    return [one for one in coordinates if not _path(folder, one).exists()]


def _path(folder: Path, coordinates: str) -> Path:
    group, artifact, version = coordinates.split(":")
    return folder / "jars" / f"{group}_{artifact}-{version}.jar"


def _fetch(folder: Path, coordinates: Sequence[str]) -> None:
    spark_submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [spark_submit, "--master", "local[1]", "--packages", ",".join(coordinates), "--conf",
         f"spark.jars.ivy={folder}", "--class", "org.apache.spark.deploy.SparkSubmitNothing", "spark-internal"],
        capture_output=True, text=True, env=java.environment(), check=False,
    )  # fmt: skip
    if missing := _missing(folder, coordinates):
        raise JarError(
            f"Spark could not fetch {', '.join(missing)}. Check that Maven Central can be reached. "
            f"The resolver said:\n{done.stderr[-2000:]}"
        )
