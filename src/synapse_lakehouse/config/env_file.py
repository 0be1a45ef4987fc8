"""Read the file ``.env`` in the current folder."""

from pathlib import Path
from typing import Final

from dotenv import dotenv_values

from synapse_lakehouse.errors import LakehouseError

ENV_FILE: Final = Path(".env")

ENCODING: Final = "utf-8-sig"
"""The encoding allows a byte order mark, with which editors on Windows begin a file."""


class EnvFileError(LakehouseError):
    """A file of settings cannot be read. The message contains the reason."""


def read_env_file(path: Path = ENV_FILE) -> dict[str, str | None]:
    """Return the variables that a file of settings sets, by name."""
    return dotenv_values(path, encoding=ENCODING)


def explain_unreadable_file(error: UnicodeDecodeError | OSError, file: Path = ENV_FILE) -> EnvFileError:
    """Return the error for a file of settings that cannot be read."""
    path = file.absolute()
    if isinstance(error, OSError):
        return EnvFileError(
            f"{path} cannot be read: {error.strerror}. Give this user the right to read it, or delete it."
        )
    line = error.object[: error.start].count(b"\n") + 1
    return EnvFileError(f"{path} is not UTF-8; the first wrong line is {line}. Save it as UTF-8.")
