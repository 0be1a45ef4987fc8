"""Read the file ``.env`` in the current folder."""

import os
from pathlib import Path
from typing import Final

from dotenv import dotenv_values
from dotenv.parser import parse_stream

from synapse_lakehouse.errors import LakehouseError

ENV_FILE: Final = Path(".env")

ENCODING: Final = "utf-8-sig"
"""The encoding allows a byte order mark, with which editors on Windows begin a file."""


class EnvFileError(LakehouseError):
    """A file of settings cannot be read. The message contains the reason."""


def choose_env_file() -> Path | None:
    """Return ``.env``, or None if the environment already has all settings of a homeserver."""
    return None if os.environ.get("LAKEHOUSE_HOMESERVER") else ENV_FILE


def require_assignments(path: Path | None) -> None:
    """Raise :class:`EnvFileError` if a line of a file of settings is no assignment, because dotenv skips such lines."""
    if path is None or not path.is_file():
        return
    with path.open(encoding=ENCODING) as file:
        for binding in parse_stream(file):
            if binding.error:
                text = binding.original.string
                line = binding.original.line + text[: -len(text.lstrip())].count("\n")
                raise EnvFileError(
                    f"{path.absolute()}, line {line}: this is not of the form NAME=value, so the "
                    "setting would be ignored. Correct the line. A value that begins with a quotation mark must end "
                    "with the same mark."
                )


def read_env_file(path: Path = ENV_FILE) -> dict[str, str | None]:
    """Return the variables that a file of settings sets, by name.

    :raises EnvFileError: when the file cannot be read.
    """
    try:
        return dotenv_values(path, encoding=ENCODING)
    except (UnicodeDecodeError, OSError) as error:
        raise explain_unreadable_file(error, path) from None


def explain_unreadable_file(error: UnicodeDecodeError | OSError, file: Path = ENV_FILE) -> EnvFileError:
    """Return the error for a file of settings that cannot be read."""
    path = file.absolute()
    if isinstance(error, OSError):
        return EnvFileError(
            f"{path} cannot be read: {error.strerror}. Let this user read the file, or delete the file."
        )
    line = error.object[: error.start].count(b"\n") + 1
    return EnvFileError(f"{path} is not UTF-8; the first wrong line is {line}. Save it as UTF-8.")
