"""Connections to Synapse's database: named, read-only, with timeouts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source.errors import SourceError, connection_failed

APPLICATION_NAME = "synapse-lakehouse"
LOCK_TIMEOUT = "10s"
# A reader that died without closing its connection must not hold back Synapse's vacuum for long.
IDLE_IN_TRANSACTION_TIMEOUT = "15min"

Connection = psycopg.Connection[tuple[Any, ...]]


def conninfo(settings: Settings) -> str:
    """libpq connection string of every connection to the source. Holds the password: never log it.

    :raises SourceError: when SYNAPSE_DSN is not a connection string, or SYNAPSE_SERVER_NAME is missing.
    """
    if not settings.synapse_dsn or not settings.synapse_server_name:
        raise SourceError(
            "SYNAPSE_DSN and SYNAPSE_SERVER_NAME belong together: the database to read, and the server_name of the "
            "homeserver it belongs to. Set both, or neither to use the shipped sample."
        )
    options = {
        "default_transaction_read_only": "on",
        "default_transaction_isolation": r"repeatable\ read",
        "statement_timeout": f"{settings.lakehouse_statement_timeout_seconds}s",
        "lock_timeout": LOCK_TIMEOUT,
        "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_TIMEOUT,
        "TimeZone": "UTC",
    }
    try:
        return make_conninfo(
            settings.synapse_dsn,
            application_name=APPLICATION_NAME,
            connect_timeout=10,
            options=" ".join(f"-c {name}={value}" for name, value in options.items()),
        )
    except psycopg.ProgrammingError:
        raise SourceError(
            "SYNAPSE_DSN is not a PostgreSQL connection string. It looks like postgresql://user:password@host:5432/synapse"
        ) from None


@contextmanager
def connect(settings: Settings) -> Iterator[Connection]:
    """A connection in one read-only, repeatable-read transaction.

    :raises SourceError: when it cannot be made.
    """
    info = conninfo(settings)
    try:
        connection = psycopg.connect(info)
    except psycopg.OperationalError as error:
        raise connection_failed(error, info) from None
    with connection:
        yield connection
