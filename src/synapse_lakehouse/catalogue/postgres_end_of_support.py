"""The end of support of each major version of PostgreSQL (https://www.postgresql.org/support/versioning/)."""

import re
from datetime import date, timedelta
from typing import Final

END_OF_SUPPORT: Final = {
    13: date(2025, 11, 13),
    14: date(2026, 11, 12),
    15: date(2027, 11, 11),
    16: date(2028, 11, 9),
    17: date(2029, 11, 8),
    18: date(2030, 11, 14),
}

NOTICE: Final = timedelta(days=180)
"""Time before the end of support, for planning an upgrade."""


def find_end_of_support(server_version: str) -> date | None:
    """Return the end of support of a server's major version; None if :data:`END_OF_SUPPORT` ends before this version.

    :param server_version: such as ``15.4 (Debian 15.4-1)``.
    """
    major = int(re.split(r"\D", server_version)[0])
    return END_OF_SUPPORT.get(max(major, min(END_OF_SUPPORT)))


def describe_support(server_version: str, end: date, today: date) -> tuple[str, bool]:
    """Return until when the version is supported, and whether to plan an upgrade now."""
    verb = "has had no support since" if today > end else "is supported until"
    return f"PostgreSQL {server_version} {verb} {end}", today > end - NOTICE
