"""Where the catalog's PostgreSQL is, read as libpq reads it and said as JDBC and SQLAlchemy want to be told."""

from collections.abc import Mapping
from itertools import cycle
from typing import Final
from urllib.parse import quote, urlencode

import psycopg2.extensions  # type: ignore[import-untyped]

from synapse_lakehouse.config.connection_strings import is_misparsed, list_ports
from synapse_lakehouse.errors import LakehouseError

# Names of libpq's parameters (https://www.postgresql.org/docs/current/libpq-connect.html) that the driver has, too.
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
_PLACE: Final = frozenset({"dbname", "host", "passfile", "password", "port", "user"})
_LOOKS_LIKE: Final = "It looks like postgresql://user:password@host:5432/iceberg"


class CatalogError(LakehouseError):
    """The catalog's URI is missing or not of a kind that the lakehouse can use; the message holds nothing of it."""


def parse_libpq_uri(uri: str) -> dict[str, str]:
    """libpq's parameters in ``uri``, by name; the password is among them.

    :raises CatalogError: when libpq would not understand it, or not as it is meant.
    """
    try:
        found: dict[str, str] = psycopg2.extensions.parse_dsn(uri)
    except psycopg2.ProgrammingError:
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI is not a PostgreSQL connection string, or has a parameter that libpq does not know. "
            f"{_LOOKS_LIKE}, with all but letters and digits of user and password as %40, %2F and so on."
        ) from None
    if is_misparsed(found):
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI has a / or @ in its user, password or database. Write them as %2F and %40, or give "
            f"a number as port. {_LOOKS_LIKE}."
        )
    return found


def to_jdbc_url(found: Mapping[str, str]) -> str:
    """The same for PostgreSQL's JDBC driver, without user and password.

    :raises CatalogError: when the driver cannot be told what libpq is.
    """
    hosts = found.get("host", "").split(",")
    if any(not one or one.startswith(("/", "@")) for one in hosts):
        raise CatalogError(
            "LAKEHOUSE_CATALOG_URI names no host, or the folder of a socket. Spark's driver connects through TCP: name "
            f"the host. {_LOOKS_LIKE}."
        )
    if unknown := sorted(found.keys() - _JDBC.keys() - _PLACE):
        raise CatalogError(
            f"LAKEHOUSE_CATALOG_URI has {', '.join(unknown)}, which Spark's driver cannot be told. Leave it out: what "
            f"can be passed on is {', '.join(sorted(_JDBC))}."
        )
    servers = (
        f"{_bracketed(host)}:{port or 5432}" for host, port in zip(hosts, cycle(list_ports(found)), strict=False)
    )
    told = {_JDBC[name]: found[name] for name in sorted(found.keys() & _JDBC.keys())}
    if wanted := told.get("targetServerType"):
        told["targetServerType"] = _SERVER_TYPES.get(wanted, wanted)
    return f"jdbc:postgresql://{','.join(servers)}/{quote(_database(found), safe='')}{_query(told)}"


def to_sqlalchemy_url(found: Mapping[str, str]) -> str:
    """The same for SQLAlchemy with psycopg2, with the password if there is one in ``found``."""
    login = ":".join(quote(found[name], safe="") for name in ("user", "password") if name in found)
    further = {name: value for name, value in found.items() if name not in {"user", "password", "dbname"}}
    return f"postgresql+psycopg2://{login}@/{quote(_database(found), safe='')}{_query(further)}"


def _query(further: Mapping[str, str]) -> str:
    return f"?{urlencode(further, quote_via=quote)}" if further else ""


def _database(found: Mapping[str, str]) -> str:
    return found.get("dbname") or found.get("user", "")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
