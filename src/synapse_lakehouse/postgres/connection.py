"""Connections to Synapse's database: named, read-only, with timeouts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from synapse_lakehouse.config.connection_strings import is_misparsed
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.errors import SourceError, explain_connection_failure

APPLICATION_NAME = "synapse-lakehouse"

_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
"""A server that is gone without a word is noticed within a minute, instead of waited for without end."""

DISABLE_TRANSACTION_TIMEOUT: Final = (
    "select set_config(name, '0', false) from pg_settings where name = 'transaction_timeout'"
)
"""Every session runs this, a connection over Arrow in each of its transactions. PostgreSQL has that timeout since
version 17, and an older server refuses a connection that asks for it. A copy is one transaction, for hours where the
database is large; ``statement_timeout`` and ``idle_in_transaction_session_timeout`` bound it."""

Connection = psycopg.Connection[tuple[Any, ...]]


def build_session_settings(settings: Settings) -> dict[str, str]:
    """PostgreSQL's settings for every session on the source, by name; all are known since version 14."""
    return {
        "default_transaction_read_only": "on",
        "default_transaction_isolation": "repeatable read",
        "statement_timeout": f"{settings.lakehouse_statement_timeout_seconds}s",
        "lock_timeout": "10s",
        # A reader that died without closing its connection must not hold back Synapse's vacuum for long.
        "idle_in_transaction_session_timeout": "15min",
        # A session that is idle between two transactions holds nothing back, and is asked again later.
        "idle_session_timeout": "0",
        # Nor may the statement of a run that was stopped go on: it has nobody to send its rows to.
        "client_connection_check_interval": "2s",
        # One process of the server for each connection, as LAKEHOUSE_SOURCE_CONNECTIONS promises.
        "max_parallel_workers_per_gather": "0",
        # A query fails where row-level security would leave rows out of its result.
        "row_security": "off",
        "TimeZone": "UTC",
    }


def build_conninfo(settings: Settings) -> str:
    """libpq connection string of every connection to the source. Holds the password: never log it.

    :raises SourceError: when SYNAPSE_DSN is not a connection string, or SYNAPSE_SERVER_NAME is missing.
    """
    if not settings.synapse_dsn or not settings.synapse_server_name:
        raise SourceError(
            "SYNAPSE_DSN and SYNAPSE_SERVER_NAME belong together: the database to read, and the server_name of the "
            "homeserver it belongs to. Set both, or neither to use the shipped sample."
        )
    return add_session_settings(settings.synapse_dsn, build_session_settings(settings))


def add_session_settings(dsn: str, session: Mapping[str, str], setting: str = "SYNAPSE_DSN") -> str:
    """``dsn`` with our name and PostgreSQL's settings for the session; ``setting`` is where it comes from.

    :raises SourceError: when it is not a connection string.
    """
    ours = [f"-c {name}={_escaped(value)}" for name, value in session.items()]
    try:
        # An operator's own options, such as a search_path, stay.
        given = conninfo_to_dict(dsn)
        if "://" in dsn and is_misparsed(given):
            raise SourceError(
                f"{setting} has a / or @ in its user, password or database. Write them as %2F and %40, or give a "
                "number as port. It looks like postgresql://user:password@host:5432/synapse"
            )
        return make_conninfo(
            dsn,
            application_name=APPLICATION_NAME,
            # ADBC hands on what the server sends, and Parquet holds nothing but UTF-8.
            client_encoding="UTF8",
            connect_timeout=10,
            options=" ".join(map(str, filter(None, [given.get("options"), *ours]))),
            **{name: value for name, value in _ALIVE.items() if name not in given},
        )
    except psycopg.ProgrammingError:
        raise SourceError(
            f"{setting} is not a PostgreSQL connection string. It looks like postgresql://user:password@host:5432/synapse"
        ) from None


def _escaped(value: str) -> str:
    return value.replace(" ", r"\ ")


def open_connection(dsn: str, session: Mapping[str, str], setting: str) -> tuple[str, Connection]:
    """A connection string of ``dsn`` with PostgreSQL's settings for the session, and a connection in autocommit mode.

    :param setting: where ``dsn`` comes from.
    :raises SourceError: when it is not a connection string, or no connection can be made.
    """
    info = add_session_settings(dsn, session, setting)
    return info, _connection(info, setting, autocommit=True)


@contextmanager
def connect(settings: Settings) -> Iterator[Connection]:
    """A connection in one read-only, repeatable-read transaction.

    :raises SourceError: when it cannot be made.
    """
    with _connection(build_conninfo(settings), "SYNAPSE_DSN") as connection:
        connection.isolation_level, connection.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
        yield connection


def require_session_settings(connection: Connection, settings: Settings) -> None:
    """:raises SourceError: when the session lacks one of :func:`build_session_settings`, as behind a pooler."""
    wanted = build_session_settings(settings) | {"transaction_timeout": "0"}
    rows = connection.execute(
        "select name, setting in ('0', 'off') from pg_settings where name = any(%s) order by name", [list(wanted)]
    ).fetchall()
    if missing := [name for name, is_off in rows if is_off is not (wanted[name] in ("0", "off"))]:
        raise SourceError(
            f"The session on Synapse's database is without {', '.join(missing)}, though they were asked for. A pooler "
            "that drops startup options answers there, as PgBouncer does with ignore_startup_parameters = options; "
            "without them a copy is not gentle. Give the address of PostgreSQL itself in SYNAPSE_DSN."
        )


def _connection(info: str, setting: str, *, autocommit: bool = False) -> Connection:
    try:
        connection = psycopg.connect(info, autocommit=True)
        connection.execute(DISABLE_TRANSACTION_TIMEOUT)
        connection.autocommit = autocommit
    except psycopg.OperationalError as error:
        raise explain_connection_failure(error, info, setting) from None
    return connection
