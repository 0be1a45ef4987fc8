"""Check how libpq parses connection strings."""

from collections.abc import Mapping
from typing import Any


def parse_conninfo(uri: str) -> dict[str, str] | None:
    """Return libpq's parameters in ``uri`` by name; None if libpq cannot parse it."""
    import psycopg2.extensions  # type: ignore[import-untyped] # slow, and rarely needed

    try:
        return dict(psycopg2.extensions.parse_dsn(uri))
    except psycopg2.ProgrammingError:
        return None


def list_ports(parameters: Mapping[str, Any]) -> list[str]:
    """Return the port of each server; "" for a server without a port."""
    return str(parameters.get("port") or "").split(",")


def is_misparsed(parameters: Mapping[str, Any]) -> bool:
    """Return whether libpq misparsed user, password or database, so that messages could show a part of the password.

    For libpq, the first / of a URI ends the server, and the first @ ends the password.

    :param parameters: libpq's parameters by name.
    """
    # The name of an abstract socket begins with @, and is allowed as host.
    host, database = (str(parameters.get(name) or "") for name in ("host", "dbname"))
    return "@" in host[1:] or "@" in database or not all(port.isdecimal() for port in list_ports(parameters) if port)
