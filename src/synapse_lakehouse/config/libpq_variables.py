"""Apply libpq's environment variables to the operator's databases, but not to the embedded PostgreSQL.

libpq reads the variables for every connection (https://www.postgresql.org/docs/current/libpq-envars.html). Therefore
they are added to the operator's URIs, and removed from the environment before any use of the embedded server.
"""

import configparser
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from synapse_lakehouse.config.connection_strings import parse_conninfo

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
"""Connection parameters by variable. libpq uses a variable if a URI lacks the parameter."""

CATALOG_PARAMETERS: Final = frozenset({
    "channel_binding", "connect_timeout", "dbname", "gssencmode", "host", "krbsrvname", "passfile", "password", "port",
    "sslcert", "sslkey", "sslmode", "sslnegotiation", "sslrootcert", "target_session_attrs", "user",
})  # fmt: skip
"""libpq parameters that the catalog's JDBC driver supports, except ``options``, which may change the search path."""

_IGNORED: Final = ("PGOPTIONS", "PGDATESTYLE", "PGTZ", "PGGEQO", "PGREQUIRESSL")
"""Variables that have no effect, because the lakehouse sets its session settings with ``options`` of the URI."""

HIDDEN_PREFIX: Final = "OPERATOR_"
"""The variables have this prefix once they are hidden from libpq."""


def hide_from_libpq() -> None:
    """Rename the variables in the environment of this process and its children. :func:`apply_to_uri` still adds them.

    PGSERVICEFILE and PGSYSCONFDIR stay, because libpq reads their files only if a URI contains a service.
    """
    for name in PARAMETER_BY_VARIABLE:
        if name in os.environ:
            os.environ[HIDDEN_PREFIX + name] = os.environ.pop(name)
    for name in _IGNORED:
        os.environ.pop(name, None)


def apply_to_uri(uri: str, only: Collection[str] | None = None) -> str:
    """Return ``uri`` with the parameters that libpq would take from the variables.

    :param only: parameters that may be added; by default all.
    """
    values = _read_variables()
    if not values:
        return uri
    parameters = parse_conninfo(uri)
    if parameters is None:
        return uri
    service = parameters.get("service", values.get("service"))
    service_parameters = read_service(service) if service else {}
    for name, value in values.items():
        if name in parameters or name in service_parameters or not (only is None or name in only):
            continue
        # Each candidate is parsed, because a ? may be part of a password, and this libpq may not know the parameter.
        for candidate in _append_parameter(uri, name, value):
            if parse_conninfo(candidate) == parameters | {name: value}:
                uri, parameters = candidate, parameters | {name: value}
                break
    return uri


def _read_variables() -> dict[str, str]:
    values = {
        name: os.environ.get(variable, os.environ.get(HIDDEN_PREFIX + variable))
        for variable, name in PARAMETER_BY_VARIABLE.items()
    }
    return {name: value for name, value in values.items() if value is not None}


def _append_parameter(uri: str, name: str, value: str) -> Iterator[str]:
    if "://" in uri:
        yield f"{uri}?{name}={quote(value, safe='')}"
        yield f"{uri}&{name}={quote(value, safe='')}"
    else:
        escaped = value.replace("\\", r"\\").replace("'", r"\'")
        yield f"{uri} {name}='{escaped}'"


def read_service(service: str) -> dict[str, str]:
    """Return the parameters of ``service`` in libpq's service file; they have precedence over variables."""
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
            return dict(parser.items(service))
    return {}
