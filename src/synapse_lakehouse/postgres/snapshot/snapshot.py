"""Export one PostgreSQL snapshot, which every reader of a run imports."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from synapse_lakehouse.catalogue import Catalogue, Database
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.preflight import check_source_database
from synapse_lakehouse.postgres.access.schema_drift import find_drifted_tables, find_unknown_objects, read_table_layouts
from synapse_lakehouse.postgres.connection import Connection, connect, get_dsn, read_server_address
from synapse_lakehouse.postgres.errors import (
    InvalidTextError,
    LockedTableError,
    RecoveryConflictError,
    SeveralServersError,
    SourceError,
    is_invalid_text,
    is_recovery_conflict,
    is_unknown_snapshot,
)
from synapse_lakehouse.postgres.rows.select_sql import hash_select
from synapse_lakehouse.postgres.snapshot.blocked_sessions import end_if_blocking
from synapse_lakehouse.postgres.snapshot.standby_replay import read_replayed_until, wait_for_replay
from synapse_lakehouse.postgres.snapshot.table_locks import find_rewritten_tables, lock_tables
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition, read_wal_position
from synapse_lakehouse.postgres.snapshot.wal_flush import wait_for_flush
from synapse_lakehouse.printable_text import get_printable_logger

_MAX_SNAPSHOTS: Final = 3
"""Maximum number of attempts to take a snapshot. An attempt fails if a table is rewritten meanwhile."""

_log = get_printable_logger(__name__)


@dataclass(frozen=True)
class SequenceValue:
    """A sequence at the time of the snapshot. It may be ahead of the rows, because sequences are not transactional."""

    name: str
    last_value: int
    is_called: bool


@dataclass(frozen=True)
class PostgresSnapshot:
    """An exported PostgreSQL snapshot of one of Synapse's databases, and the state of the database.

    * ``database``: main or state; main if one database has all tables.
    * ``name``: name by which other transactions import the snapshot.
    * ``server``: address of the server that has the snapshot (:func:`read_server_address`).
    * ``replayed_until``: time up to which the database has all transactions; on a standby, the time of the last
      replayed commit.
    * ``fingerprints``: by table, the result of :func:`hash_select`.
    * ``drifted_tables``: tables that cannot be copied, with the reason; empty unless LAKEHOUSE_ON_DRIFT=partial.
    * ``absent_objects``: tables and columns of the catalogue that this release of Synapse lacks.
    * ``unknown_objects``: tables and columns that are new to this version of the lakehouse.
    * ``is_durable``: whether the WAL of everything that the snapshot saw is flushed, so that a crash cannot undo it.
    """

    database: Database
    name: str
    server: Mapping[str, str]
    taken_at: datetime
    server_version: str
    schema_version: int
    xmin: int
    xmax: int
    wal_position: WalPosition
    in_recovery: bool
    replayed_until: datetime
    sequences: tuple[SequenceValue, ...]
    fingerprints: Mapping[str, str]
    drifted_tables: Mapping[str, str]
    absent_objects: Collection[str]
    unknown_objects: Collection[str]
    is_durable: bool = True

    @property
    def xmin_horizon(self) -> int | None:
        """The transaction ID from which a later run searches for changes; None if IDs cannot show changes."""
        return self.xmin if self.is_durable else None


@contextmanager
def export_snapshot(
    settings: Settings, catalogue: Catalogue, after: PostgresSnapshot | None = None
) -> Iterator[tuple[Connection, PostgresSnapshot]]:
    """Check the source, export a snapshot, and lock the tables against rewrites until the context ends.

    :param catalogue: the part of the catalogue that is in the database.
    :param after: a snapshot of Synapse's other database. A standby first replays all commits before ``after``.
    :raises SourceError: when the database does not fit the catalogue, its tables are rewritten repeatedly, or a standby
        is behind ``after``.
    :raises ReadError: when a statement fails, or the connection is lost.
    :raises LockedTableError: when another session locks a table, or waits for the lock of a table.
    :raises RecoveryConflictError: when a standby cancels the snapshot; a new snapshot may live longer.
    :raises InvalidTextError: when a text is not UTF-8.
    :raises SeveralServersError: when a reader does not find the snapshot, although it still exists.
    """
    database = catalogue.databases[0]
    with (
        connect(settings, database) as connection,
        end_if_blocking(settings, database, connection) as blocked_tables,
    ):
        on_standby = False
        try:
            if after:
                wait_for_replay(connection, after.replayed_until, get_dsn(settings, database)[0])
            snapshot = _take_complete_snapshot(connection, catalogue, settings)
            on_standby = snapshot.in_recovery
            yield connection, snapshot
        except Exception as error:
            if blocked_tables or isinstance(error, psycopg.errors.LockNotAvailable):
                raise LockedTableError(blocked_tables) from None
            if is_recovery_conflict(error) or (on_standby and _is_lost(connection)):
                raise RecoveryConflictError from None
            if is_invalid_text(error):
                raise InvalidTextError from None
            if is_unknown_snapshot(error) and _has_transaction(connection):
                raise SeveralServersError(get_dsn(settings, catalogue.databases[0])[0]) from None
            raise


@contextmanager
def import_snapshot(settings: Settings, snapshot: PostgresSnapshot) -> Iterator[Connection]:
    """Yield another connection that sees ``snapshot``. The snapshot must stay exported meanwhile.

    :raises SourceError: when the connection cannot be made.
    :raises ReadError: when the snapshot no longer exists.
    """
    with connect(settings, snapshot.database, snapshot.server) as connection:
        connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot.name)))
        yield connection


def _take_complete_snapshot(connection: Connection, catalogue: Catalogue, settings: Settings) -> PostgresSnapshot:
    """Take a snapshot that sees all rows of its tables. If possible, wait until a crash cannot undo the seen rows."""
    rewritten: list[str] = []
    for _ in range(_MAX_SNAPSHOTS):
        snapshot = _take_snapshot(connection, catalogue, settings)
        tables = {table.name for table in catalogue.restrict_to_source(snapshot.absent_objects).tables}
        tables -= snapshot.drifted_tables.keys()
        lock_tables(connection, tables)
        if not (rewritten := find_rewritten_tables(connection, tables)):
            position = snapshot.wal_position
            if not snapshot.in_recovery and not wait_for_flush(connection, position, settings, snapshot.database):
                _log.warning(
                    "PostgreSQL did not flush its WAL in time. A crash of the server could undo rows that are copied "
                    "now, so the next run does a full copy. Check the disk load of Synapse's database server."
                )
                return replace(snapshot, is_durable=False)
            return snapshot
        connection.rollback()
    raise SourceError(
        f"In each of {_MAX_SNAPSHOTS} attempts, tables were rewritten, or their partitions changed, while a snapshot "
        f"was taken: {', '.join(rewritten)} (by TRUNCATE, VACUUM FULL, CLUSTER, pg_repack or ALTER TABLE). The "
        "snapshot could miss rows of these tables, so nothing was copied. Run again when that work on Synapse's "
        "database is over."
    )


def _take_snapshot(connection: Connection, catalogue: Catalogue, settings: Settings) -> PostgresSnapshot:
    # The position is read first. The reads below may prune pages, and WAL of that pruning would also need a flush.
    wal_position = read_wal_position(connection)
    schema = check_source_database(
        connection, catalogue, str(settings.synapse_server_name), may_be_partial=settings.allows_partial_copy
    )
    present = catalogue.restrict_to_source(schema.absent_objects)
    row = connection.execute(
        "select pg_export_snapshot(), now(), current_setting('server_version'),"
        " pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint, pg_is_in_recovery()"
        " from pg_current_snapshot() s"
    ).fetchone()
    assert row is not None
    name, taken_at, server_version, xmin, xmax, in_recovery = row
    return PostgresSnapshot(
        database=catalogue.databases[0],
        name=name,
        server=read_server_address(connection),
        taken_at=taken_at,
        server_version=server_version,
        schema_version=schema.version,
        xmin=xmin,
        xmax=xmax,
        wal_position=wal_position,
        in_recovery=in_recovery,
        replayed_until=read_replayed_until(connection),
        sequences=tuple(_read_sequence(connection, stream.sequence) for stream in present.streams),
        fingerprints={
            name: hash_select(present.table(name), layout)
            for name, layout in read_table_layouts(present, connection).items()
        },
        drifted_tables=find_drifted_tables(present, connection),
        absent_objects=schema.absent_objects,
        unknown_objects=find_unknown_objects(catalogue, connection),
    )


def _has_transaction(connection: Connection) -> bool:
    """Return whether the session is in an intact transaction, so that other sessions can import its snapshot."""
    return not _is_lost(connection) and connection.info.transaction_status is TransactionStatus.INTRANS


def _is_lost(connection: Connection) -> bool:
    """Return whether the session that exports the snapshot has ended, so that no reader can import it."""
    try:
        connection.execute("select 1")
    except psycopg.OperationalError:
        return True
    except psycopg.Error:
        return False
    return False


def _read_sequence(connection: Connection, name: str) -> SequenceValue:
    row = connection.execute(sql.SQL("select last_value, is_called from {}").format(sql.Identifier(name))).fetchone()
    assert row is not None
    return SequenceValue(name, int(row[0]), bool(row[1]))
