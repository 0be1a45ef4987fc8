"""What is read of a homeserver.yaml."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

DAY: Final = 86_400_000
"""Milliseconds."""

_UNITS: Final = {"": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY, "w": 7 * DAY, "y": 365 * DAY}


def section(config: Path | None, name: str, error: type[ValueError]) -> Mapping[str, Any]:
    """The top-level section ``name`` of the file that SYNAPSE_CONFIG names; empty if there is none.

    :param error: what is raised, with a message for people, when the file cannot be read or has no section there. The
        message repeats nothing of the file, which holds secrets.
    """
    if config is None:
        return {}
    try:
        content: Any = yaml.safe_load(config.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"SYNAPSE_CONFIG={config} cannot be read: {problem.strerror}.") from None
    except (ValueError, yaml.YAMLError) as problem:
        raise error(f"SYNAPSE_CONFIG={config} cannot be read as YAML: {_why(problem)}.") from None
    found = content.get(name) if isinstance(content, Mapping) else None
    if not isinstance(found, Mapping | None):
        raise error(f"{name} in SYNAPSE_CONFIG should be a section.")
    return found or {}


def _why(problem: ValueError | yaml.YAMLError) -> str:
    if isinstance(problem, yaml.MarkedYAMLError) and problem.problem and problem.problem_mark:
        mark = problem.problem_mark
        # From the first quotation mark on, it may be the file's own words.
        description = re.sub(r"['\"].*", "…", problem.problem, flags=re.DOTALL)
        return f"line {mark.line + 1}, column {mark.column + 1}: {description}"
    if isinstance(problem, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(problem, yaml.YAMLError):
        return "it has a character that YAML does not allow"
    return "it has a number or a date that is none"


def milliseconds(duration: object) -> int:
    """A duration as Synapse's configuration has it: milliseconds, or a number with a unit such as ``90s`` or ``1d``.

    :raises ValueError: for anything else.
    """
    found = re.fullmatch(r"([0-9]+)([smhdwy]?)", str(duration).strip())
    if isinstance(duration, bool) or not found:
        raise ValueError(f"not a duration such as 1d, 12h, 30m, 90s or a number of milliseconds: {duration!r}")
    return int(found[1]) * _UNITS[found[2]]
