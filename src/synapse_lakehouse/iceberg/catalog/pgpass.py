"""Write the catalog's password to a file in libpq's format, which PostgreSQL's JDBC driver reads.

Spark sends its configuration to executors, so the configuration must not contain the password. The file exists only in
the memory of this process. Only the process's user can read the file, and it vanishes with the process.
"""

import os
from collections.abc import Mapping
from typing import Final

PGPASS_PROPERTY: Final = "org.postgresql.pgpassfile"
"""Java system property with the path of the password file."""

_lines: dict[tuple[str, str], str] = {}
_files: list[int] = []


def write_pgpass_file(parameters: Mapping[str, str]) -> str | None:
    """Return the path of a file with the password in libpq's ``parameters``; their ``passfile`` if there is none."""
    if "password" not in parameters:
        return parameters.get("passfile")
    user = parameters.get("user", "")
    database = parameters.get("dbname") or user
    # The driver looks up one password for all hosts of an address.
    _lines[database, user] = ":".join(["*", "*", *map(_escaped, (database, user, parameters["password"]))])
    if not _files:
        _files.append(os.memfd_create("pgpass"))
    os.ftruncate(_files[0], 0)
    os.pwrite(_files[0], "".join(f"{line}\n" for line in _lines.values()).encode(), 0)
    return f"/proc/{os.getpid()}/fd/{_files[0]}"


def _escaped(field: str) -> str:
    return field.replace("\\", r"\\").replace(":", r"\:")
