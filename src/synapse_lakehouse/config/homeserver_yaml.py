"""Read sections and durations of homeserver.yaml, as Synapse reads its files (``synapse.config._base``)."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from synapse_lakehouse.errors import LakehouseError

DAY_MILLISECONDS: Final = 86_400_000
"""Milliseconds of a day."""

_UNITS: Final = {
    "": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": DAY_MILLISECONDS,
    "w": 7 * DAY_MILLISECONDS,
    "y": 365 * DAY_MILLISECONDS,
}

_MAY_BE_FALSE: Final = ("stream_writers", "databases")
"""Sections in which Synapse accepts a false value, such as an empty list, and treats it as an empty section."""

_INVALID_VALUE_ERRORS: Final = (ValueError, LookupError, AttributeError, ArithmeticError)
"""Errors of the YAML parser for a scalar that does not fit its type, such as ``!!bool x``."""


def read_section(config: Path | None, name: str, error: type[LakehouseError]) -> Mapping[str, Any]:
    """Return the top-level section ``name`` of SYNAPSE_CONFIG; empty if there is no such section.

    :param config: a file, a folder with files, or several of them, separated by a colon. The last file with the section
        decides: Synapse does not merge sections.
    :param error: class of the error that is raised when a file cannot be read or the value is no section. Its message
        contains no text of the file, because the file contains secrets.
    """
    section = _read_value(config, name, error) if config else None
    if name in _MAY_BE_FALSE and not section:
        return {}
    if not isinstance(section, Mapping | None):
        raise error(f"{name} in SYNAPSE_CONFIG must be a section.")
    return section or {}


def read_server_name(config: Path | None, error: type[LakehouseError]) -> str | None:
    """Return ``server_name`` in SYNAPSE_CONFIG; None if no file has it. See :func:`read_section`."""
    name = _read_value(config, "server_name", error) if config else None
    return str(name) if name else None


def _read_value(config: Path, name: str, error: type[LakehouseError]) -> Any:
    """Return the value of ``name`` in the last file that has it; None if no file has it."""
    contents = [_read_file(file, error) for file in _find_files(config, error)]
    mappings = [content for content in contents if isinstance(content, Mapping)]
    if not mappings:
        raise error(f"SYNAPSE_CONFIG={config} has no settings. A homeserver.yaml must be a mapping of names to values.")
    return next((mapping[name] for mapping in reversed(mappings) if name in mapping), None)


def _find_files(config: Path, error: type[LakehouseError]) -> Iterator[Path]:
    """Yield the files in the order in which Synapse reads them. Of a folder, these are ``*.yaml``, sorted by name."""
    for path in map(Path, filter(None, str(config).split(os.pathsep))):
        try:
            files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else None
        except OSError as problem:
            raise error(f"SYNAPSE_CONFIG={path} cannot be read: {problem.strerror}.") from None
        yield from [path] if files is None else (file for file in files if file.name.endswith(".yaml"))


def _read_file(file: Path, error: type[LakehouseError]) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"SYNAPSE_CONFIG={file} cannot be read: {problem.strerror}.") from None
    except (*_INVALID_VALUE_ERRORS, RecursionError, yaml.YAMLError) as problem:
        raise error(f"SYNAPSE_CONFIG={file} cannot be read as YAML: {_explain(problem)}.") from None


def require_one_database(config: Path | None, error: type[LakehouseError]) -> None:
    """Raise ``error`` if state and events are in different databases (``synapse.config.database``).

    :param error: class of the error, as in :func:`read_section`.
    """
    databases = read_section(config, "databases", error)
    parameters = [_find_parameters(database) for database in databases.values()]
    if len(parameters) > 1 and parameters[0] and all(other == parameters[0] for other in parameters[1:]):
        # Each data store has its own pool of connections to the same database.
        return
    for name, database in databases.items():
        stores = database.get("data_stores") if isinstance(database, Mapping) else None
        if isinstance(stores, list) and len({"main", "state"} & set(map(str, stores))) == 1:
            raise error(
                f"databases.{name} in SYNAPSE_CONFIG has the data_stores {', '.join(map(str, stores))} only: set "
                "SYNAPSE_STATE_DSN to the database with the data_stores state, and SYNAPSE_DSN to the other one."
            )


def _find_parameters(database: object) -> list[object]:
    """Return the parameters that identify the database; empty if the file has none."""
    arguments = database.get("args") if isinstance(database, Mapping) else None
    if not isinstance(arguments, Mapping):
        return []
    name = arguments.get("dbname") or arguments.get("database")
    return [name, *(arguments.get(key) for key in ("host", "port", "service", "dsn"))]


def _explain(problem: Exception) -> str:
    if isinstance(problem, yaml.MarkedYAMLError) and problem.problem and problem.problem_mark:
        mark = problem.problem_mark
        # The text after the first quotation mark may be content of the file, so it is removed.
        description = re.sub(r"['\"].*", "…", problem.problem, flags=re.DOTALL)
        return f"line {mark.line + 1}, column {mark.column + 1}: {description}"
    if isinstance(problem, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(problem, yaml.YAMLError):
        return "it has a character that YAML does not allow"
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    return "it has a value that does not fit its type, such as an invalid number or date"


def parse_duration(duration: object) -> int:
    """Parse a duration of Synapse's configuration (a number, or a text such as ``90s``); return milliseconds.

    :raises ValueError: for any other value.
    """
    match = re.fullmatch(r"([0-9]+)([smhdwy]?)", str(duration).strip())
    if isinstance(duration, bool) or not match:
        raise ValueError(f"not a duration such as 1d, 12h, 30m, 90s or a number of milliseconds: {duration!r}")
    return int(match[1]) * _UNITS[match[2]]
