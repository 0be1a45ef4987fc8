"""Earlier releases of Synapse, each in a virtual environment of its own."""

from pathlib import Path
from typing import Final

from sample.environment import PROJECT, VERSION, python_with, synapse_python

NEWEST: Final = VERSION

_DAY: Final = "2022-12-15"
"""Of the dependencies, versions before this day are installed: the first that have wheels for Python 3.11 and still fit
releases of Synapse that are older."""

_BUILD: Final = "setuptools<70\n"
"""Releases before 1.17 have no wheel, and are built with a setuptools that has ``pkg_resources``."""


def release_python(version: str) -> Path:
    """Return the Python of an environment with this release of Synapse; install it if necessary.

    :raises ReplicationServiceError: when uv is missing or the installation fails.
    """
    if version == NEWEST:
        return synapse_python()
    folder = PROJECT / ".lakehouse" / "synapse-releases"
    folder.mkdir(parents=True, exist_ok=True)
    constraints = folder / "build-constraints.txt"
    constraints.write_text(_BUILD)
    # The project's own constraints are for newer builds. Some releases import pkg_resources, or their client of Redis,
    # wherever they follow replication.
    options: list[str | Path] = ["--no-config", "--exclude-newer", _DAY]
    options += ["--build-constraints", constraints, "setuptools<70", "txredisapi"]
    return python_with("matrix-synapse", version, folder / version, options=options)
