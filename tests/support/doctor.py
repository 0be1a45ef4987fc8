"""Types of the fixtures of ``lakehouse doctor``."""

from collections.abc import Callable

import psycopg

Findings = dict[str, list[dict[str, str]]]
Examine = Callable[..., tuple[int, Findings]]


def role_of(dsn: str) -> str:
    """The role that a URI names."""
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["user"])
