"""Earlier releases of Synapse, each in its own virtual environment."""

from pathlib import Path
from typing import Final

from sample.environment import PROJECT, VERSION, python_with, synapse_python

NEWEST: Final = VERSION

_DAY: Final = "2022-12-15"
"""Dependencies are installed in their versions before this day. They have wheels for Python 3.11, and older releases of
Synapse still work with them."""

_BUILD: Final = "setuptools<70\n"
"""Releases before 1.17 have no wheel. Their build requires a setuptools with ``pkg_resources``."""


def release_python(version: str) -> Path:
    """Return the Python of an environment with a release of Synapse. Install the release if necessary.

    :raises ServiceError: if uv is missing or the installation fails.
    """
    if version == NEWEST:
        return synapse_python()
    folder = PROJECT / ".lakehouse" / "synapse-releases"
    folder.mkdir(parents=True, exist_ok=True)
    constraints = folder / "build-constraints.txt"
    constraints.write_text(_BUILD)
    # The project's constraints do not fit earlier releases. Some releases import pkg_resources and their Redis client
    # with the replication code.
    options: list[str | Path] = ["--no-config", "--exclude-newer", _DAY]
    options += ["--build-constraints", constraints, "setuptools<70", "txredisapi"]
    return python_with("matrix-synapse", version, folder / version, options=options)
