"""Parse the PostgreSQL URI of the catalog as libpq does, and convert it for JDBC and SQLAlchemy."""

from collections.abc import Mapping
from itertools import cycle
from typing import Final
from urllib.parse import quote, urlencode

import psycopg2.extensions  # type: ignore[import-untyped]

from synapse_lakehouse.config.connection_strings import is_misparsed, list_ports
from synapse_lakehouse.errors import LakehouseError

# libpq parameters (https://www.postgresql.org/docs/current/libpq-connect.html) and their names in the JDBC driver.
_JDBC: Final = {
    "application_name": "ApplicationName",
    "channel_binding": "channelBinding",
    "connect_timeout": "connectTimeout",
    "gssencmode": "gssEncMode",
    "krbsrvname": "kerberosServerName",
    "options": "options",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslmode": "sslmode",
    "sslnegotiation": "sslNegotiation",
    "sslrootcert": "sslrootcert",
    "target_session_attrs": "targetServerType",
}
_SERVER_TYPES: Final = {
    "any": "any",
    "prefer-standby": "preferSecondary",
    "primary": "primary",
    "read-only": "secondary",
    "read-write": "primary",
    "standby": "secondary",
}
_CONVERTED: Final = frozenset({"dbname", "host", "passfile", "password", "port", "user"})
NO_OPTIONS: Final = " "
"""Value of libpq's parameter ``options`` for a URI without this parameter. Without a value, libpq uses PGOPTIONS, which
is meant for the source and may change the search path. The value is a space, because SQLAlchemy omits an empty
value."""
_EXAMPLE: Final = "An example is postgresql://user:password@host:5432/iceberg"


class CatalogError(LakehouseError):
    """The catalog's URI is missing or not usable. The message contains no part of it."""


def parse_libpq_uri(uri: str) -> dict[str, str]:
    """Return the libpq parameters in ``uri`` by name, including the password.

    :raises CatalogError: when libpq cannot parse ``uri``, or would parse it differently than intended.
    """
    try:
        parameters: dict[str, str] = psycopg2.extensions.parse_dsn(uri)
    except psycopg2.ProgrammingError:
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI is not a PostgreSQL connection string, or has a parameter that libpq does not know. "
            f"{_EXAMPLE}. Percent-encode all characters of user and password except letters and digits."
        ) from None
    if is_misparsed(parameters):
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI has a / or @ in its user, password or database, or a port that is not a number. "
            f"Write / as %2F and @ as %40. {_EXAMPLE}."
        )
    return parameters


def to_jdbc_url(parameters: Mapping[str, str]) -> str:
    """Return the URL for PostgreSQL's JDBC driver with the libpq ``parameters``, without user and password.

    :raises CatalogError: when the URI names no TCP host, or the driver does not support a parameter.
    """
    hosts = parameters.get("host", "").split(",")
    if any(not host or host.startswith(("/", "@")) for host in hosts):
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI has no host, or the folder of a socket as host. Spark connects through TCP, so set "
            f"a host name. {_EXAMPLE}."
        )
    if unknown := sorted(parameters.keys() - _JDBC.keys() - _CONVERTED):
        raise CatalogError(
            f"LAKEHOUSE_CATALOG_URI has {', '.join(unknown)}, but PostgreSQL's JDBC driver does not support this "
            f"parameter. Remove the parameter. The supported parameters are {', '.join(sorted(_JDBC))}."
        )
    hosts = [f"[{host}]" if ":" in host else host for host in hosts]
    servers = (f"{host}:{port or 5432}" for host, port in zip(hosts, cycle(list_ports(parameters)), strict=False))
    options = {_JDBC[name]: parameters[name] for name in sorted(parameters.keys() & _JDBC.keys())}
    if server_type := options.get("targetServerType"):
        options["targetServerType"] = _SERVER_TYPES.get(server_type, server_type)
    return f"jdbc:postgresql://{','.join(servers)}/{quote(_database(parameters), safe='')}{_query(options)}"


def to_sqlalchemy_url(parameters: Mapping[str, str]) -> str:
    """Return the URL for SQLAlchemy and psycopg2 with the libpq ``parameters``, including a password."""
    login = ":".join(quote(parameters[name], safe="") for name in ("user", "password") if name in parameters)
    options = {name: value for name, value in parameters.items() if name not in {"user", "password", "dbname"}}
    return f"postgresql+psycopg2://{login}@/{quote(_database(parameters), safe='')}{_query(options)}"


def _query(options: Mapping[str, str]) -> str:
    return f"?{urlencode(options, quote_via=quote)}" if options else ""


def _database(parameters: Mapping[str, str]) -> str:
    return parameters.get("dbname") or parameters.get("user", "")
