"""One exported PostgreSQL snapshot: the single truth that every reader of a run imports."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import psycopg
from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.preflight import check_source_database
from synapse_lakehouse.postgres.access.schema_drift import find_drifted_tables, find_unknown_objects, read_table_layouts
from synapse_lakehouse.postgres.connection import Connection, connect, require_session_settings
from synapse_lakehouse.postgres.errors import ReadError, RecoveryConflictError, SourceError, is_recovery_conflict
from synapse_lakehouse.postgres.rows.select_sql import (
    build_changed_since_condition,
    build_stream_id_counts,
    fingerprint_select,
)
from synapse_lakehouse.postgres.snapshot.table_locks import find_rewritten_tables, lock_tables
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition, read_wal_position
from synapse_lakehouse.postgres.snapshot.wal_flush import wait_for_flush
from synapse_lakehouse.printable_text import get_printable_logger

MAX_CTIDS: Final = 50_000
"""Of more changed rows it is not kept where they are."""

_SNAPSHOTS: Final = 3
"""So many are taken, the latter ones where a table was rewritten just when the one before was taken."""
_COUNTER: Final = "lakehouse.changed"

_log = get_printable_logger(__name__)


@dataclass(frozen=True)
class SequenceValue:
    """A sequence as it stood when the snapshot was taken. Sequences are not transactional: it may run ahead."""

    name: str
    last_value: int
    is_called: bool


@dataclass(frozen=True)
class PostgresSnapshot:
    """The state of the source that a run copies; ``name`` is what other transactions import.

    ``fingerprints`` tell by table whether the same is read as before. ``drifted``: tables that cannot be copied, with
    the reason; empty unless LAKEHOUSE_ON_DRIFT lets them be. ``novelties``: tables and columns that the lakehouse has
    never heard of. ``is_durable``: whether a crash of the source could undo nothing of what was seen.
    """

    name: str
    taken_at: datetime
    server_version: str
    schema_version: int
    xmin: int
    xmax: int
    wal_position: WalPosition
    in_recovery: bool
    sequences: tuple[SequenceValue, ...]
    fingerprints: Mapping[str, str]
    drifted_tables: Mapping[str, str]
    unknown_objects: Collection[str]
    is_durable: bool = True

    @property
    def xmin_horizon(self) -> int | None:
        """The transaction since which a later run finds what changed; None: it cannot be told from transactions."""
        return self.xmin if self.is_durable else None


@dataclass(frozen=True)
class HeapFile:
    """The file that a table's rows live in, and its pages. A rewritten table has another file."""

    filenode: int
    pages: int


@dataclass(frozen=True)
class RowCounts:
    """Rows of a table, how many of them changed, and the ctids of these as PostgreSQL writes an array, if they are few.

    Of changed rows only those in the pages before a certain one, where :func:`count_changed_rows` was told one.

    The ctids hold as long as the snapshot that they were found in.
    """

    rows: int
    changed: int
    places: str | None


@dataclass(frozen=True)
class StreamIdCounts:
    """Stream ids of one writer in a table that is counted and not copied."""

    writer: str | None
    rows: int
    null_ids: int
    first_id: int | None
    last_id: int | None


@contextmanager
def export_snapshot(settings: Settings, catalogue: Catalogue) -> Iterator[tuple[Connection, PostgresSnapshot]]:
    """Take a snapshot after checking the source, and keep it importable, and its tables whole, while the context lasts.

    :raises SourceError: when the source cannot be read as the catalogue says, or its tables are rewritten again and
        again.
    :raises ReadError: when a statement fails, or the connection is lost.
    :raises RecoveryConflictError: when a standby took the snapshot back; a new one may live longer.
    """
    with connect(settings) as connection:
        on_standby = False
        try:
            require_session_settings(connection, settings)
            snapshot = _take_whole(connection, catalogue, settings)
            on_standby = snapshot.in_recovery
            yield connection, snapshot
        except Exception as error:
            if is_recovery_conflict(error) or (on_standby and _is_lost(connection)):
                raise RecoveryConflictError from None
            if isinstance(error, psycopg.Error):
                raise ReadError(error) from None
            raise


@contextmanager
def import_snapshot(settings: Settings, snapshot: PostgresSnapshot) -> Iterator[Connection]:
    """Another connection that sees what ``snapshot`` saw, which has to be kept importable meanwhile.

    :raises SourceError: when it cannot be made.
    :raises psycopg.Error: when the snapshot is gone.
    """
    with connect(settings) as connection:
        connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot.name)))
        yield connection


def _take_whole(connection: Connection, catalogue: Catalogue, settings: Settings) -> PostgresSnapshot:
    """A snapshot that has all rows of all its tables, and of which a crash takes nothing back, if that can be."""
    lost: list[str] = []
    for _ in range(_SNAPSHOTS):
        snapshot = _take(connection, catalogue, settings)
        read = {table.name for table in catalogue.tables} - snapshot.drifted_tables.keys()
        lock_tables(connection, read)
        if not (lost := find_rewritten_tables(connection, read)):
            if not snapshot.in_recovery and not wait_for_flush(connection, snapshot.wal_position, settings):
                _log.warning(
                    "PostgreSQL has not written its log to the disk for a while. As a crash could undo what is copied "
                    "now, the next run copies everything again. See what keeps the disk of Synapse's database busy."
                )
                return replace(snapshot, is_durable=False)
            return snapshot
        connection.rollback()
    raise SourceError(
        f"While snapshots were taken, {', '.join(lost)} were rewritten (by TRUNCATE, VACUUM FULL, CLUSTER, pg_repack "
        f"or ALTER TABLE), {_SNAPSHOTS} times in a row. Such snapshots see no rows there, so nothing was copied. Run "
        "again when that work on Synapse's database is over."
    )


def _take(connection: Connection, catalogue: Catalogue, settings: Settings) -> PostgresSnapshot:
    # First, as what is read now is tidied up as well, and that would have to be on disk, too.
    seen = read_wal_position(connection)
    version = check_source_database(
        connection,
        catalogue,
        str(settings.synapse_server_name),
        may_be_partial=settings.allows_partial_copy,
    )
    row = connection.execute(
        "select pg_export_snapshot(), now(), current_setting('server_version'),"
        " pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint, pg_is_in_recovery()"
        " from pg_current_snapshot() s"
    ).fetchone()
    assert row is not None
    name, taken_at, server_version, xmin, xmax, in_recovery = row
    return PostgresSnapshot(
        name=name,
        taken_at=taken_at,
        server_version=server_version,
        schema_version=version,
        xmin=xmin,
        xmax=xmax,
        wal_position=seen,
        in_recovery=in_recovery,
        sequences=tuple(_sequence(connection, stream.sequence) for stream in catalogue.streams),
        fingerprints={
            name: fingerprint_select(catalogue.table(name), layout)
            for name, layout in read_table_layouts(catalogue, connection).items()
        },
        drifted_tables=find_drifted_tables(catalogue, connection),
        unknown_objects=find_unknown_objects(catalogue, connection),
    )


def _is_lost(connection: Connection) -> bool:
    """Whether the session that keeps the snapshot has ended, so that no reader can import it any more."""
    try:
        connection.execute("select 1")
    except psycopg.OperationalError:
        return True
    except psycopg.Error:
        return False
    return False


def read_heap_file(connection: Connection, table: Table) -> HeapFile:
    """Where and how large the heap of ``table`` is."""
    row = connection.execute(
        "select pg_relation_filenode(t)::bigint, pg_relation_size(t) / current_setting('block_size')::int"
        " from to_regclass(%s) t",
        [table.name],
    ).fetchone()
    assert row is not None
    return HeapFile(*row)


def count_rows(connection: Connection, table: Table) -> int:
    """Rows of ``table`` that the snapshot sees."""
    row = connection.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(table.name))).fetchone()
    return int(row[0]) if row else 0


def count_changed_rows(connection: Connection, table: Table, transaction: int, before: int | None = None) -> RowCounts:
    """Rows of ``table`` that the snapshot sees, and those that ``transaction`` or a later one wrote, in one scan.

    With ``before``, of the latter only those in the pages before that one.

    An aggregate that is handed every row costs a third of the scan: PostgreSQL knows anyway how many visible rows the
    scans of a transaction came across, where it tracks that. And no aggregate stops at a number of values, so a setting
    of the session counts those that changed: the server never holds more than ``MOST_PLACES`` of them.
    """
    # As a condition of the scan ``before`` would keep other pages from being scanned, and their rows from counting.
    counts = sql.SQL("true") if before is None else sql.SQL("ctid < {}").format(sql.Literal(f"({before},0)"))
    connection.execute("select set_config(%s, '0', true)", [_COUNTER])
    scanned = _rows_scanned(connection, table)
    row = connection.execute(
        sql.SQL(
            "select count(*) filter (where {counts}), array_agg(ctid) filter (where case when {counts} then"
            " set_config({n}, (current_setting({n})::bigint + 1)::text, true)::bigint <= {most} end)::text"
            " from {table} where {changed}"
        ).format(
            changed=build_changed_since_condition(transaction),
            counts=counts,
            n=sql.Literal(_COUNTER),
            most=sql.Literal(MAX_CTIDS),
            table=sql.Identifier(table.name),
        )
    ).fetchone()
    assert row is not None
    found, places = int(row[0]), (row[1] or "{}")
    now = _rows_scanned(connection, table)
    rows = count_rows(connection, table) if scanned is None or now is None else now - scanned
    return RowCounts(rows, found, places if found <= MAX_CTIDS else None)


def _rows_scanned(connection: Connection, table: Table) -> int | None:
    """Visible rows that sequential scans of ``table`` came across in this transaction, if the server counts them.

    Not where a query may see fewer rows (row security) or more (of tables that inherit) than such a scan.
    """
    row = connection.execute(
        "select pg_stat_get_xact_tuples_returned(c.oid) from pg_class c join pg_am a on a.oid = c.relam and"
        " a.amname = 'heap' where c.oid = to_regclass(%s) and not c.relhassubclass and not row_security_active(c.oid)"
        " and current_setting('track_counts')::bool",
        [table.name],
    ).fetchone()
    return int(row[0]) if row else None


def count_stream_ids(connection: Connection, table: Table, stream_column: str) -> list[StreamIdCounts]:
    """Stream ids of a table that is only counted, writer by writer."""
    return [StreamIdCounts(*row) for row in connection.execute(build_stream_id_counts(table, stream_column)).fetchall()]


def _sequence(connection: Connection, name: str) -> SequenceValue:
    row = connection.execute(sql.SQL("select last_value, is_called from {}").format(sql.Identifier(name))).fetchone()
    assert row is not None
    return SequenceValue(name, int(row[0]), bool(row[1]))
