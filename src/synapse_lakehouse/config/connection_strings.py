"""Connection strings as libpq reads them, and as they were meant. Pure."""

from collections.abc import Mapping
from typing import Any


def list_ports(found: Mapping[str, Any]) -> list[str]:
    """One for each server; "" where none is given."""
    return str(found.get("port") or "").split(",")


def is_misparsed(found: Mapping[str, Any]) -> bool:
    """Whether libpq took a part of user, password or database for something else, which is then told to everybody.

    It takes what stands before the first / of a URI for the server, and a password for ended at the first @.

    :param found: libpq's parameters, by name.
    """
    # A host may begin with @: that is a socket without a file.
    host, database = (str(found.get(name) or "") for name in ("host", "dbname"))
    return "@" in host[1:] or "@" in database or not all(one.isdecimal() for one in list_ports(found) if one)
