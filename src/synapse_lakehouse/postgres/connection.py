"""Connections to Synapse's database: named, read-only, with timeouts."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from synapse_lakehouse.catalogue import Catalogue, Database
from synapse_lakehouse.config.connection_strings import is_misparsed
from synapse_lakehouse.config.libpq_variables import read_service
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.errors import (
    InvalidTextError,
    SourceError,
    convert_read_error,
    explain_connection_failure,
    is_invalid_text,
)

APPLICATION_NAME = "synapse-lakehouse"

_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
"""TCP settings that detect a dead server within a minute."""

DISABLE_TRANSACTION_TIMEOUT: Final = (
    "select set_config(name, '0', false) from pg_settings where name = 'transaction_timeout'"
)
"""Statement that disables ``transaction_timeout``, because a copy is one transaction of hours on a large database.

The timeout exists since PostgreSQL 17. Older servers refuse a connection that sets it as an option.
``statement_timeout`` and ``idle_in_transaction_session_timeout`` limit the copy instead."""

Connection = psycopg.Connection[tuple[Any, ...]]


def build_session_settings(settings: Settings) -> dict[str, str]:
    """Return the settings for every session on Synapse's database, by name. PostgreSQL 14 has all of them."""
    return {
        "default_transaction_read_only": "on",
        "default_transaction_isolation": "repeatable read",
        "statement_timeout": f"{settings.lakehouse_statement_timeout_seconds}s",
        "lock_timeout": "10s",
        # If a reader dies without closing its connection, it must not block Synapse's vacuum for long.
        "idle_in_transaction_session_timeout": "15min",
        # An idle session between two transactions blocks nothing and is used again later.
        "idle_session_timeout": "0",
        # PostgreSQL ends a statement soon after its run was stopped.
        "client_connection_check_interval": "2s",
        # One server process per connection, as LAKEHOUSE_SOURCE_CONNECTIONS promises.
        "max_parallel_workers_per_gather": "0",
        # A count or a list of the keys of a whole table comes from the heap, because an index may be damaged.
        "enable_indexonlyscan": "off",
        # A query fails if row-level security would remove rows from its result.
        "row_security": "off",
        "TimeZone": "UTC",
    }


def split_by_database(settings: Settings, declared: Catalogue) -> list[Catalogue]:
    """Return the parts of ``declared`` by database, main first. Without SYNAPSE_STATE_DSN there is one part."""
    return [declared.of_database(database) for database in Database] if settings.synapse_state_dsn else [declared]


def get_dsn(settings: Settings, database: Database) -> tuple[str, str]:
    """Return the name of the setting with the DSN of a database, and the DSN; "" if it is not set."""
    if database is Database.STATE and settings.synapse_state_dsn:
        return "SYNAPSE_STATE_DSN", settings.synapse_state_dsn
    return "SYNAPSE_DSN", settings.synapse_dsn or ""


def build_conninfo(
    settings: Settings, database: Database = Database.MAIN, server: Mapping[str, str] | None = None
) -> str:
    """Return the libpq connection string for one of Synapse's databases. It contains the password: never log it.

    :param server: address of the server that the connection must reach, as :func:`read_server_address` returns it.
    :raises SourceError: when SYNAPSE_DSN is not a connection string, or SYNAPSE_SERVER_NAME is missing.
    """
    if not settings.synapse_dsn or not settings.synapse_server_name:
        raise SourceError(
            "SYNAPSE_DSN (the database) and SYNAPSE_SERVER_NAME (its homeserver) must be set together. "
            "Set both, or set neither to use the shipped sample."
        )
    setting, dsn = get_dsn(settings, database)
    conninfo = add_session_settings(dsn, build_session_settings(settings), setting)
    return _pin_server(conninfo, server) if server else conninfo


def read_server_address(connection: Connection) -> dict[str, str]:
    """Return the parameters host, hostaddr and port of the server that the connection has reached.

    A DSN with several hosts, or a host name with several addresses, may lead to another server the next time.
    """
    info = connection.info
    return {"host": info.host, "hostaddr": info.hostaddr, "port": str(info.port)}


def _pin_server(conninfo: str, server: Mapping[str, str]) -> str:
    """Return ``conninfo`` for this server only. ``host`` stays the name that TLS compares with the certificate."""
    address = server["hostaddr"]
    # A loopback address is of no use to executors on other machines. There, the host name may have another address.
    is_local = not address or ip_address(address).is_loopback
    if is_local and "hostaddr" not in conninfo_to_dict(conninfo):
        return make_conninfo(conninfo, host=server["host"], port=server["port"])
    return make_conninfo(conninfo, **server)


def add_session_settings(dsn: str, session: Mapping[str, str], setting: str = "SYNAPSE_DSN") -> str:
    """Return ``dsn`` with the application name and the session settings.

    :param setting: name of the setting that contains ``dsn``, for messages.
    :raises SourceError: when it is not a connection string.
    """
    options = [f"-c {name}={_escaped(value)}" for name, value in session.items()]
    try:
        parameters = conninfo_to_dict(dsn)
        if "://" in dsn and is_misparsed(parameters):
            raise SourceError(
                f"{setting} has a / or @ in its user, password or database, or a port that is not a number. Write / "
                "as %2F and @ as %40. The format is postgresql://user:password@host:5432/synapse"
            )
        # The operator's own options, such as a search_path, stay in force. Options of a libpq service are repeated
        # here, because libpq would replace them.
        of_service = read_service(str(parameters["service"])) if "service" in parameters else {}
        operator_options = parameters.get("options") or of_service.get("options")
        return make_conninfo(
            dsn,
            application_name=APPLICATION_NAME,
            # ADBC does not convert text, and text in Parquet must be UTF-8.
            client_encoding="UTF8",
            connect_timeout=10,
            options=" ".join(map(str, filter(None, [operator_options, *options]))),
            **{name: value for name, value in _KEEPALIVE.items() if name not in parameters},
        )
    except psycopg.ProgrammingError:
        raise SourceError(
            f"{setting} is not a PostgreSQL connection string. The format is postgresql://user:password@host:5432/synapse"
        ) from None


def _escaped(value: str) -> str:
    return value.replace(" ", r"\ ")


def open_connection(dsn: str, session: Mapping[str, str], setting: str) -> tuple[str, Connection]:
    """Return a connection string for the reached server, and a connection to this server in autocommit mode.

    The connection string contains the session settings.

    :param setting: name of the setting that contains ``dsn``, for messages.
    :raises SourceError: when ``dsn`` is not a connection string, no connection can be made, or a pooler drops settings.
    """
    conninfo = add_session_settings(dsn, session, setting)
    connection = _connect(conninfo, session, setting, autocommit=True)
    return _pin_server(conninfo, read_server_address(connection)), connection


@contextmanager
def connect(
    settings: Settings, database: Database = Database.MAIN, server: Mapping[str, str] | None = None
) -> Iterator[Connection]:
    """Yield a connection to one of Synapse's databases in one read-only, repeatable-read transaction.

    :param server: as in :func:`build_conninfo`.
    :raises SourceError: when the connection cannot be made, or a pooler drops its settings.
    :raises ReadError: for a psycopg.Error, when a statement fails, a standby cancels it, or the connection is lost.
    """
    session, (setting, _) = build_session_settings(settings), get_dsn(settings, database)
    try:
        with _connect(build_conninfo(settings, database, server), session, setting) as connection:
            connection.isolation_level, connection.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
            yield connection
    except psycopg.Error as error:
        raise (InvalidTextError() if is_invalid_text(error) else convert_read_error(error)) from None


def _connect(conninfo: str, session: Mapping[str, str], setting: str, *, autocommit: bool = False) -> Connection:
    with ExitStack() as stack:
        try:
            connection = psycopg.connect(conninfo, autocommit=True)
            stack.callback(connection.close)
            # A pooler could later give a session with this setting to another client, so the check comes first.
            if not (lost := _find_lost_settings(connection, session)):
                connection.execute(DISABLE_TRANSACTION_TIMEOUT)
        except psycopg.OperationalError as error:
            raise explain_connection_failure(error, conninfo, setting) from None
        if lost:
            raise SourceError(
                f"The session of {setting} does not have the settings {', '.join(lost)} from its own startup options. "
                "A connection pooler drops startup options, as PgBouncer does with ignore_startup_parameters=options. "
                "A pooled session may lose its settings and locks between two statements, and could then overload or "
                f"block the database. Set the address of PostgreSQL itself in {setting}."
            )
        connection.autocommit = autocommit
        stack.pop_all()
    return connection


def _find_lost_settings(connection: Connection, session: Mapping[str, str]) -> list[str]:
    """Return the settings of ``session`` that are not in force, or do not come from this session's startup options.

    A role or a database may have the same settings (``lakehouse grants`` sets them for the role). Then a pooled session
    has them, too, but ``pg_settings.source`` is ``client`` only for startup options.
    """
    rows = connection.execute(
        "select name, setting in ('0', 'off'), source = 'client' from pg_settings where name = any(%s) order by name",
        [list(session)],
    ).fetchall()
    return [
        name
        for name, is_off, is_startup_option in rows
        if is_off is not (session[name] in ("0", "off")) or not is_startup_option
    ]


SYNAPSE_SCHEMA_SQL: Final = (
    "(SELECT relnamespace::regnamespace FROM pg_class WHERE oid = to_regclass('schema_version'))"
)
"""SQL of the schema with Synapse's tables. Other schemas of the search_path may come before it."""


def has_table(connection: Connection, name: str) -> bool:
    """Return whether a table exists in the schemas that the connection searches."""
    return connection.execute("select to_regclass(%s) is not null", [name]).fetchone() == (True,)
