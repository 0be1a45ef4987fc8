"""Types of the fixtures of ``lakehouse doctor``."""

from collections.abc import Callable

import psycopg

Findings = dict[str, list[dict[str, str]]]
Examine = Callable[..., tuple[int, Findings]]


def role_of(dsn: str) -> str:
    """Return the role that a libpq URI names."""
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["user"])
