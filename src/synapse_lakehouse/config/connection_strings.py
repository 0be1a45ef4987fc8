"""Check how libpq parses connection strings."""

from collections.abc import Mapping
from typing import Any


def list_ports(parameters: Mapping[str, Any]) -> list[str]:
    """Return the port of each server; "" where none is given."""
    return str(parameters.get("port") or "").split(",")


def is_misparsed(parameters: Mapping[str, Any]) -> bool:
    """Return whether libpq parsed a part of user, password or database as another parameter, which messages would show.

    libpq ends the server at the first / of a URI, and the password at the first @.

    :param parameters: libpq's parameters by name.
    """
    # A host may begin with @: an abstract socket.
    host, database = (str(parameters.get(name) or "") for name in ("host", "dbname"))
    return "@" in host[1:] or "@" in database or not all(port.isdecimal() for port in list_ports(parameters) if port)
