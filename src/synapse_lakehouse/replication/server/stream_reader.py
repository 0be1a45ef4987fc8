"""Read the streams of Synapse's database: positions, and pages of rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import Final

import psycopg

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.absent_objects import find_absent_objects
from synapse_lakehouse.postgres.access.preflight import require_server_name, require_supported_version
from synapse_lakehouse.postgres.access.ungranted_additions import exclude_additions, find_ungranted_additions
from synapse_lakehouse.postgres.connection import Connection, connect, split_by_database
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS, RowSchema
from synapse_lakehouse.replication.protocol.stream_tokens import Source, Update
from synapse_lakehouse.replication.server.position_reader import PositionReader, ReadTransactions
from synapse_lakehouse.replication.server.row_page import RowFormat, read_page
from synapse_lakehouse.replication.server.settled_ids import SETTLE_SECONDS, read_transactions
from synapse_lakehouse.replication.server.skipped_rows import SkippedRows
from synapse_lakehouse.replication.server.sql import build_parameters
from synapse_lakehouse.replication.server.stream_positions import StreamPositions
from synapse_lakehouse.replication.server.stream_writers import StreamWriters
from synapse_lakehouse.streams.positions.configured_writers import read_configured_writers

log = get_printable_logger(__name__)

EXAMINE_SECONDS: Final = 60.0
"""Interval at which the reader examines whether an upgrade of Synapse has added tables and columns."""


class DatabaseReader:
    """Reads a database, from one thread at a time. It connects when needed, and again after a failure."""

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        settle_seconds: float = SETTLE_SECONDS,
        schemas: Mapping[str, Sequence[RowSchema]] = ROW_SCHEMAS,
        read_transactions: ReadTransactions = read_transactions,
        *,
        supported_only: bool = False,
        examine_seconds: float = EXAMINE_SECONDS,
    ) -> None:
        """:param schemas: row schemas of the streams to read.

        :param supported_only: whether to refuse a database that a run would refuse because of its schema version.
        :param examine_seconds: interval at which the reader follows an upgrade of Synapse.
        :raises StreamWritersError: if the configured writers are invalid.
        """
        self._format = RowFormat(catalogue, schemas)
        self._settings = settings
        self._catalogue = catalogue
        self._supported_only = supported_only
        configured = read_configured_writers(catalogue, settings.lakehouse_stream_writers, settings.synapse_config)
        self._writers = StreamWriters(configured)
        self._positions = PositionReader(catalogue, self._writers, settle_seconds, read_transactions)
        self._skipped = SkippedRows()
        self._exit_stack = ExitStack()
        self._connection: Connection | None = None
        self._absent_objects: Sequence[str] | None = None
        self._examine_seconds = examine_seconds
        self._examined_at = 0.0
        self._ungranted: Sequence[str] = ()

    def close(self) -> None:
        """Close the connection, if it is open."""
        self._connection = None
        with suppress(psycopg.Error):
            self._exit_stack.close()

    def read_positions(self) -> StreamPositions:
        """Like :meth:`PositionReader.read`.

        :raises SourceError: if the database cannot be reached, has a refused version, or belongs to another homeserver.
        :raises ReadError: if a query of the database fails.
        """
        with self._transaction() as connection:
            return self._positions.read(connection)

    def read_page(self, source: Source, after: int, upto: int) -> tuple[list[Update], int]:
        """Return the tokens of ``source`` in (``after``, ``upto``], lowest first, and the token where the page ends.

        A row that cannot be sent is skipped and logged.

        :raises SourceError: as :meth:`read_positions`.
        :raises ReadError: if a query of the database fails.
        """
        stream, instance = source
        with self._transaction() as connection:
            parameters = build_parameters(after, upto, instance, self._writers.unnamed_writer(stream))
            return read_page(connection, self._format, source, parameters, self._skipped)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        is_new = self._connection is None
        if self._connection is None:
            self._connection = self._exit_stack.enter_context(connect(self._settings))
        try:
            if is_new or monotonic() - self._examined_at >= self._examine_seconds:
                self._examine(self._connection, is_new=is_new)
            yield self._connection
            self._connection.rollback()
        except BaseException as error:
            self.close()
            if isinstance(error, psycopg.Error):
                raise ReadError(error) from None
            raise

    def _examine(self, connection: Connection, *, is_new: bool) -> None:
        """Adapt to the source's release of Synapse, which an upgrade may have changed.

        While the role may not read the tables and columns that an upgrade added, the reader continues with the streams
        of the release before the upgrade.
        """
        main = split_by_database(self._settings, self._catalogue)[0]
        absent = find_absent_objects(main, connection)
        is_changed = absent != self._absent_objects
        if self._supported_only:
            require_supported_version(connection, main)
        present = main.restrict_to_source(absent)
        if is_new:
            require_server_name(connection, present, self._settings)
        must_search = is_new or is_changed or bool(self._ungranted)
        missing = self._find_ungranted(connection, present) if must_search else {}
        ungranted = list(missing.values())
        has_news = ungranted != self._ungranted
        if ungranted and has_news:
            log.warning(
                "Synapse was upgraded, and the role may not read the tables and columns that the upgrade added. The"
                " server sends only the streams and fields of the release of Synapse before the upgrade. Run the SQL of"
                " `lakehouse grants` again. %s",
                " ".join(ungranted),
            )
        if is_new or is_changed or has_news:
            self._prepare(connection, exclude_additions(present, missing))
        self._absent_objects, self._ungranted = absent, ungranted
        self._examined_at = monotonic()
        connection.rollback()

    def _find_ungranted(self, connection: Connection, present: Catalogue) -> dict[str, str]:
        """Like :func:`find_ungranted_additions`, but only additions that the served streams are read from."""
        served = [stream for stream in present.streams if stream.name in self._format.schemas]
        names = {table.name for stream in served for table, _ in present.backing_tables(stream.name)}
        names |= {stream.sequence for stream in served}
        missing = find_ungranted_additions(present, connection)
        return {name: message for name, message in missing.items() if name.partition(".")[0] in names}

    def _prepare(self, connection: Connection, present: Catalogue) -> None:
        """Read the tables of ``present`` from now on, except columns that the role may not read and need not copy."""
        unreadable = self._read_unreadable_columns(present, connection)
        self._format = replace(self._format, catalogue=present, unreadable=unreadable)
        self._positions.prepare(present, [stream for stream in present.streams if stream.name in self._format.schemas])

    def _read_unreadable_columns(self, present: Catalogue, connection: Connection) -> frozenset[tuple[str, str]]:
        """Return the columns that are only served, not copied, and that the role may not read."""
        served = [
            (table.name, name)
            for table in present.tables
            for column in table.columns
            if column.only_served
            for name in column.source_columns
        ]
        rows = connection.execute(
            "select distinct name, read from unnest(%s::text[], %s::text[]) as served(name, read)"
            " where not has_column_privilege(name, read, 'select')",
            [[table for table, _ in served], [column for _, column in served]],
        )
        unreadable = frozenset((table, column) for table, column in rows)
        if unreadable - self._format.unreadable:
            log.warning(
                "The role may not read %s, so these fields are withheld. `lakehouse grants` prints the SQL that grants"
                " this right; for the keys of caches, use --cache-keys.",
                ", ".join(sorted(f"{table}.{column}" for table, column in unreadable)),
            )
        return unreadable
