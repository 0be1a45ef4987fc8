"""Connections that read Synapse's database, one PostgreSQL snapshot after the other."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import adbc_driver_postgresql.dbapi as postgresql
import psycopg
from adbc_driver_manager import Error

from synapse_lakehouse.compressor.algorithm.encode_tables import STATE_SCHEMAS
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.errors import convert_database_error
from synapse_lakehouse.compressor.postgres.connection import require_state_database
from synapse_lakehouse.compressor.postgres.progress_tables import PRIVILEGES
from synapse_lakehouse.compressor.postgres.room_reader import RoomReader
from synapse_lakehouse.compressor.postgres.supported_version import require_supported_version
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.grants import SCHEMA_TABLES
from synapse_lakehouse.postgres.access.row_security import find_hidden_rows
from synapse_lakehouse.postgres.access.state_database import explain_foreign_state
from synapse_lakehouse.postgres.connection import DISABLE_TRANSACTION_TIMEOUT, build_session_settings, open_connection
from synapse_lakehouse.postgres.errors import ReadError

ReaderFactory = Callable[[], AbstractContextManager[RoomReader]]
"""Opens a reader of a new PostgreSQL snapshot, in one read-only, repeatable-read transaction."""


@contextmanager
def connect_readers(dsn: str, settings: Settings, setting: str) -> Iterator[ReaderFactory]:
    """Connect to ``dsn`` to read state; ``setting``: the name of the setting that contains the DSN.

    :raises SourceError: when no connection can be opened, or this version of Synapse is not supported.
    :raises CompressorError: when the database is not Synapse's, when SYNAPSE_STATE_DSN names another database, when the
        role lacks a privilege, or when the state belongs to another homeserver than the events.
    :raises ReadError: when another statement fails, or a connection is lost.
    """
    session = build_session_settings(settings)
    info, connection = open_connection(dsn, session, setting)
    with ExitStack() as stack, _convert_errors():
        events = stack.enter_context(connection)
        if settings.synapse_state_dsn and not settings.synapse_dsn:
            raise CompressorError("SYNAPSE_STATE_DSN is set, but SYNAPSE_DSN is not. Set both, or remove both.")
        _require_synapse(connection, setting)
        require_supported_version(connection)
        if dsn != settings.synapse_state_dsn:
            require_state_database(connection, settings)
        if settings.synapse_dsn and dsn != settings.synapse_dsn:
            main = stack.enter_context(open_connection(settings.synapse_dsn, session, "SYNAPSE_DSN")[1])
            if problem := explain_foreign_state(main, connection, setting):
                raise CompressorError(problem)
            if settings.synapse_state_dsn:
                events = main
            else:
                main.close()
        with postgresql.connect(info) as arrow:

            @contextmanager
            def open_reader() -> Iterator[RoomReader]:
                with _convert_errors(), connection.transaction():
                    row = connection.execute("select pg_export_snapshot()").fetchone()
                    assert row is not None
                    with arrow.cursor() as cursor:
                        cursor.execute(f"set transaction snapshot '{row[0]}'")
                        cursor.execute(DISABLE_TRANSACTION_TIMEOUT)
                    try:
                        yield RoomReader(connection, arrow, events)
                    finally:
                        arrow.rollback()

            yield open_reader


@contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise convert_database_error(error) from None
    except (psycopg.Error, Error) as error:
        raise ReadError(error) from None


def _require_synapse(connection: psycopg.Connection[Any], setting: str) -> None:
    row = connection.execute(
        "select array(select t from unnest(%s::text[]) t where to_regclass(t) is null), current_database()",
        [[*STATE_SCHEMAS, *(grant.name for grant in SCHEMA_TABLES)]],
    ).fetchone()
    assert row is not None
    if row[0]:
        raise CompressorError(
            f"The database {row[1]} is not that of a Synapse homeserver: this role sees no {', '.join(row[0])} in "
            f"it. Correct the database in {setting}, or the role's privileges and search_path."
        )
    if problems := find_hidden_rows(connection, PRIVILEGES):
        raise CompressorError("\n".join(problems))
