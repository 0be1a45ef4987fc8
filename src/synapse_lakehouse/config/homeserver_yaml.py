"""What is read of a homeserver.yaml."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from synapse_lakehouse.errors import LakehouseError

DAY_MILLISECONDS: Final = 86_400_000
"""Milliseconds."""

_UNITS: Final = {
    "": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": DAY_MILLISECONDS,
    "w": 7 * DAY_MILLISECONDS,
    "y": 365 * DAY_MILLISECONDS,
}


def read_section(config: Path | None, name: str, error: type[LakehouseError]) -> Mapping[str, Any]:
    """The top-level section ``name`` of the file that SYNAPSE_CONFIG names; empty if there is none.

    :param error: what is raised, with a message for people, when the file cannot be read or has no section there. The
        message repeats nothing of the file, which holds secrets.
    """
    if config is None:
        return {}
    if config.is_dir():
        raise error(
            f"SYNAPSE_CONFIG={config} cannot be read: it is a folder. Give the file in it that has stream_writers and "
            "retention; join several files to one."
        )
    try:
        content: Any = yaml.safe_load(config.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"SYNAPSE_CONFIG={config} cannot be read: {problem.strerror}.") from None
    except (ValueError, RecursionError, yaml.YAMLError) as problem:
        raise error(f"SYNAPSE_CONFIG={config} cannot be read as YAML: {_why(problem)}.") from None
    if not isinstance(content, Mapping):
        raise error(f"SYNAPSE_CONFIG={config} has no settings: a homeserver.yaml is a mapping of names to values.")
    found = content.get(name)
    if not isinstance(found, Mapping | None):
        raise error(f"{name} in SYNAPSE_CONFIG should be a section.")
    return found or {}


def require_one_database(config: Path | None, error: type[LakehouseError]) -> None:
    """Refuse a homeserver that keeps its state elsewhere than its events (``synapse.config.database``).

    :param error: what is raised, as of :func:`read_section`.
    """
    databases = read_section(config, "databases", error)
    for name, database in databases.items():
        stores = database.get("data_stores") if isinstance(database, Mapping) else None
        if isinstance(stores, list) and len({"main", "state"} & set(map(str, stores))) == 1:
            raise error(
                f"databases.{name} in SYNAPSE_CONFIG has data_stores: {', '.join(map(str, stores))}. A homeserver with "
                "its state in another database than its events is not supported yet: without both in one PostgreSQL "
                "snapshot nobody can say who sees what."
            )


def _why(problem: ValueError | RecursionError | yaml.YAMLError) -> str:
    if isinstance(problem, yaml.MarkedYAMLError) and problem.problem and problem.problem_mark:
        mark = problem.problem_mark
        # From the first quotation mark on, it may be the file's own words.
        description = re.sub(r"['\"].*", "…", problem.problem, flags=re.DOTALL)
        return f"line {mark.line + 1}, column {mark.column + 1}: {description}"
    if isinstance(problem, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(problem, yaml.YAMLError):
        return "it has a character that YAML does not allow"
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    return "it has a number or a date that is none"


def parse_duration(duration: object) -> int:
    """A duration as Synapse's configuration has it: milliseconds, or a number with a unit such as ``90s`` or ``1d``.

    :raises ValueError: for anything else.
    """
    found = re.fullmatch(r"([0-9]+)([smhdwy]?)", str(duration).strip())
    if isinstance(duration, bool) or not found:
        raise ValueError(f"not a duration such as 1d, 12h, 30m, 90s or a number of milliseconds: {duration!r}")
    return int(found[1]) * _UNITS[found[2]]
