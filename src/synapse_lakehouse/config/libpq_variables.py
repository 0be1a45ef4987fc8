"""libpq's environment variables. They are an operator's, for Synapse's database, and not for the embedded PostgreSQL.

libpq reads them whenever it connects, wherever to. So they become a part of the URIs of an operator's databases, and
leave the environment before anything connects to the embedded server.
https://www.postgresql.org/docs/current/libpq-envars.html
"""

import configparser
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

PARAMETER_BY_VARIABLE: Final = {
    "PGAPPNAME": "application_name",
    "PGCHANNELBINDING": "channel_binding",
    "PGCLIENTENCODING": "client_encoding",
    "PGCONNECT_TIMEOUT": "connect_timeout",
    "PGDATABASE": "dbname",
    "PGGSSDELEGATION": "gssdelegation",
    "PGGSSENCMODE": "gssencmode",
    "PGGSSLIB": "gsslib",
    "PGHOST": "host",
    "PGHOSTADDR": "hostaddr",
    "PGKRBSRVNAME": "krbsrvname",
    "PGLOADBALANCEHOSTS": "load_balance_hosts",
    "PGMAXPROTOCOLVERSION": "max_protocol_version",
    "PGMINPROTOCOLVERSION": "min_protocol_version",
    "PGPASSFILE": "passfile",
    "PGPASSWORD": "password",
    "PGPORT": "port",
    "PGREQUIREAUTH": "require_auth",
    "PGREQUIREPEER": "requirepeer",
    "PGSERVICE": "service",
    "PGSSLCERT": "sslcert",
    "PGSSLCERTMODE": "sslcertmode",
    "PGSSLCOMPRESSION": "sslcompression",
    "PGSSLCRL": "sslcrl",
    "PGSSLCRLDIR": "sslcrldir",
    "PGSSLKEY": "sslkey",
    "PGSSLMAXPROTOCOLVERSION": "ssl_max_protocol_version",
    "PGSSLMINPROTOCOLVERSION": "ssl_min_protocol_version",
    "PGSSLMODE": "sslmode",
    "PGSSLNEGOTIATION": "sslnegotiation",
    "PGSSLROOTCERT": "sslrootcert",
    "PGSSLSNI": "sslsni",
    "PGTARGETSESSIONATTRS": "target_session_attrs",
    "PGUSER": "user",
}
"""Parameters of a connection, by the variable that stands in where a URI does not have them."""

_OF_SESSIONS: Final = ("PGOPTIONS", "PGDATESTYLE", "PGTZ", "PGGEQO", "PGREQUIRESSL")
"""They have no effect: sessions are set as the lakehouse needs them, and by ``options`` in a URI."""

_removed: dict[str, str] = {}


def remove_from_environment() -> None:
    """Remove the variables from the environment of this process and its children. :func:`apply_to_uri` still adds them.

    The files that PGSERVICEFILE and PGSYSCONFDIR name are read only where a URI names a service.
    """
    for name in (*PARAMETER_BY_VARIABLE, *_OF_SESSIONS):
        if name in os.environ:
            _removed[name] = os.environ.pop(name)


def apply_to_uri(uri: str, only: Collection[str] | None = None) -> str:
    """``uri`` with the parameters that libpq would take from the variables.

    :param only: parameters that may be added; by default all that libpq knows.
    """
    values = _values()
    if not values:
        return uri
    import psycopg2.extensions  # type: ignore[import-untyped] # few have such variables

    def parsed(candidate: str) -> dict[str, str] | None:
        try:
            return dict(psycopg2.extensions.parse_dsn(candidate))
        except psycopg2.ProgrammingError:
            return None

    known = parsed(uri)
    if known is None:
        return uri
    service = known.get("service", values.get("service"))
    in_service = _service(service) if service else frozenset[str]()
    for name, value in values.items():
        if name in known or name in in_service or not (only is None or name in only):
            continue
        # A ? may also be a part of a password; and an older libpq ignores variables that it does not know.
        for candidate in _with(uri, name, value):
            if parsed(candidate) == known | {name: value}:
                uri, known = candidate, known | {name: value}
                break
    return uri


def _values() -> dict[str, str]:
    variables = _removed | dict(os.environ)
    return {name: variables[variable] for variable, name in PARAMETER_BY_VARIABLE.items() if variable in variables}


def _with(uri: str, name: str, value: str) -> Iterator[str]:
    if "://" in uri:
        yield f"{uri}?{name}={quote(value, safe='')}"
        yield f"{uri}&{name}={quote(value, safe='')}"
    else:
        escaped = value.replace("\\", r"\\").replace("'", r"\'")
        yield f"{uri} {name}='{escaped}'"


def _service(service: str) -> frozenset[str]:
    """Parameters that libpq's service file has for ``service``; there they win over variables."""
    variables = os.environ
    own = Path(variables.get("PGSERVICEFILE") or Path.home() / ".pg_service.conf")
    for file in (own, Path(variables.get("PGSYSCONFDIR", "/etc/postgresql-common")) / "pg_service.conf"):
        parser = configparser.ConfigParser(
            delimiters=("=",), comment_prefixes=("#",), interpolation=None, strict=False, default_section=""
        )
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue
        if parser.has_section(service):
            return frozenset(parser.options(service))
    return frozenset()
