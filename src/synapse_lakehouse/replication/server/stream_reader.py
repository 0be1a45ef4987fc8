"""The streams of a Synapse database, read as replication sends them: positions, and the rows between two of them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import psycopg
from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Stream
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import Connection, connect
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.row_schemas import SHAPES, Shape
from synapse_lakehouse.replication.protocol.stream_tokens import Source, Update
from synapse_lakehouse.replication.server import sql as server_sql
from synapse_lakehouse.replication.server.row_page import RowForm, read_page
from synapse_lakehouse.replication.server.settled_ids import (
    SETTLE_SECONDS,
    SettledIds,
    read_transactions,
    sequence_holders,
)
from synapse_lakehouse.replication.server.skipped_rows import SkippedRows
from synapse_lakehouse.streams.positions.safe_bound import (
    FIRST_ID,
    BoundRule,
    SafeBound,
    compute_bound,
    extend_without_gap,
)
from synapse_lakehouse.streams.positions.writers import MASTER, default_writer, read_configured_writers

log = get_printable_logger(__name__)

PAGE_ROWS: Final = 1000
"""Rows of one table that are read at a time, give or take those of one token."""

_NAMELESS: Final = frozenset({"account_data"})
"""Streams whose rows name no writer."""


@dataclass(frozen=True)
class Heads:
    """How far streams are complete: in all, and by the instance that writes them.

    ``handed_out``: the highest token that a writer may have got. ``settling``: streams without positions;
    ``unbounded``: those of which nobody knows up to where they are complete, as a writer has no position, with the last
    token that had a row when that was first seen: what writers without a position wrote later, they announce later.
    ``is_standby``: rows may have been announced that the database has not replayed yet.
    """

    linear: Mapping[str, int]
    by_instance: Mapping[Source, int]
    handed_out: Mapping[str, int]
    settling: Collection[str]
    is_standby: bool = False
    unbounded: Mapping[str, int] = field(default_factory=dict)

    def of(self, source: Source) -> int:
        """The position of a stream, or of one instance's part in it."""
        stream, instance = source
        return self.linear[stream] if instance is None else self.by_instance.get(source, self.linear[stream])

    def now(self, source: Source) -> int:
        """Where to begin with whatever comes from now on, even if what was before is not complete."""
        return self.of(source) if source[0] not in self.settling else self.handed_out[source[0]]

    def subscribed(self, source: Source) -> int:
        """Where somebody begins who wants what comes from now on, and no history where nobody knows what is complete.

        Of a stream without positions the last rows are given again, as one that is under way may be among them.
        """
        stream, instance = source
        at = self.of(source)
        if at > FIRST_ID:
            return at
        if instance is not None and stream not in self.settling:
            return self.unbounded.get(stream, at)
        return self.handed_out[stream] if stream in self.settling or stream in self.unbounded else at

    def are_behind(self, source: Source, token: int) -> bool:
        """Whether nobody can have written ``token`` in this database: it went back, by a restore or a failover."""
        return not self.is_standby and self.handed_out.get(source[0], token) < token

    def begin(self, source: Source) -> int | None:
        """As :meth:`now`; None for a writer that has no position although its stream was written: nobody knows it."""
        now = self.now(source)
        return None if now == FIRST_ID < self.handed_out[source[0]] else now


class Feed:
    """Reads a database; for one thread at a time. It connects when it needs to, and again after a failure."""

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        settle_seconds: float = SETTLE_SECONDS,
        shapes: Mapping[str, Sequence[Shape]] = SHAPES,
    ) -> None:
        """:param shapes: of the streams that are read.

        :raises WritersError: when the configured writers cannot be understood.
        """
        self._form = RowForm(catalogue, shapes)
        self._streams = [stream for stream in catalogue.streams if stream.name in shapes]
        self._settings = settings
        self._settle_seconds = settle_seconds
        self._catalogue = catalogue
        self._writers = read_configured_writers(catalogue, settings.lakehouse_stream_writers, settings.synapse_config)
        self._stored: dict[str, frozenset[str]] = {}
        self._heard_of: dict[str, set[str]] = {}
        self._linear: dict[str, int] = {}
        self._settled: dict[str, SettledIds] = {}
        self._unbounded: dict[str, int] = {}
        self._told: dict[str, object] = {}
        self._guessed = sorted(
            stream.name for stream in self._streams if stream.stream_positions and stream.name not in self._writers
        )
        self._looked_at: dict[str, object] = {}
        self._skipped = SkippedRows()
        self._open = ExitStack()
        self._connection: Connection | None = None

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._connection = None
        with suppress(psycopg.Error):
            self._open.close()

    def heads(self) -> Heads:
        """How far the streams are complete now. Never goes back, unless the database does.

        :raises SourceError: when the database cannot be reached.
        :raises ReadError: when it cannot be read.
        """
        if self._guessed:
            log.warning(
                "The writers of %s are guessed from their positions. Rows of a worker that never wrote such a stream"
                " may be passed over. Set SYNAPSE_CONFIG or LAKEHOUSE_STREAM_WRITERS.",
                ", ".join(self._guessed),
            )
            self._guessed = []
        with self._snapshot() as connection:
            # Before the snapshot, so that it shows the rows of each transaction that has ended by now.
            holders = self._sequence_holders(connection)
            connection.rollback()
            positions: dict[str, dict[str, int]] = {}
            for name, instance, token in connection.execute(
                "select stream_name, coalesce(instance_name, %s), stream_id from stream_positions", [MASTER]
            ):
                positions.setdefault(name, {})[instance] = token
            sequences = self._sequences(connection)
            transactions = read_transactions(connection)
            is_standby = transactions.is_standby
            by_instance: dict[Source, int] = {}
            unbounded: dict[str, int] = {}
            for stream in self._streams:
                stored = positions.get(stream.stream_positions or "", {})
                self._stored[stream.name] = frozenset(stored)
                last_value, is_called = sequences[stream.sequence]
                was = max(known.get(stream.name, FIRST_ID) for known in (self._linear, self._unbounded))
                if not is_standby and last_value < was:
                    log.warning("The database went back: %s is at %d, after %d", stream.name, last_value, was)
                    for known in (self._linear, self._looked_at, self._settled, self._unbounded):
                        known.pop(stream.name, None)
                bound = None
                if stream.stream_positions:
                    bound = self._bound(stream, stored, last_value, is_used=is_called)
                least = bound.minimum if bound else None
                if is_standby and least is None:
                    # It sees sequences up to 32 ids ahead of what was handed out.
                    last_value = self._last_row(connection, stream)
                    sequences[stream.sequence] = (last_value, is_called)
                if least is not None:
                    linear = self._gapless_end(connection, stream, stored, last_value, stream.direction * least)
                elif bound:
                    linear = FIRST_ID
                    if stream.name not in self._unbounded:
                        self._unbounded[stream.name] = min(self._last_row(connection, stream), last_value)
                    unbounded[stream.name] = self._unbounded[stream.name]
                else:
                    settled = self._settled.setdefault(stream.name, SettledIds(self._settle_seconds))
                    linear = settled.advance(last_value, holders.get(stream.sequence), transactions)
                    # At first all rows tell who writes, later those that are complete since: each is looked at once.
                    self._hear_of_writers(connection, stream, linear if stream.name in self._heard_of else last_value)
                linear = max(linear, self._linear.get(stream.name, FIRST_ID))
                self._linear[stream.name] = linear
                writers = self._instances(stream, stored)
                nameless = self._unnamed(stream.name) if stream.name in _NAMELESS and len(writers) > 1 else None
                for instance in writers:
                    # Any of several writers may have written the rows that name none.
                    own = FIRST_ID if instance == nameless else stream.direction * stored.get(instance, 0)
                    by_instance[(stream.name, instance)] = max(own, linear)
            return Heads(
                dict(self._linear),
                by_instance,
                {stream.name: sequences[stream.sequence][0] for stream in self._streams},
                {stream.name for stream in self._streams if not stream.stream_positions},
                is_standby,
                unbounded,
            )

    def page(self, source: Source, after: int, upto: int) -> tuple[list[Update], int]:
        """Tokens of ``source`` in (``after``, ``upto``], lowest first, and how far they reach if there are many.

        A row that no line can carry is skipped and named in the log.

        :raises SourceError: when the database cannot be reached.
        :raises ReadError: when it cannot be read.
        """
        stream, instance = source
        with self._snapshot() as connection:
            given = self._given(stream, after, upto, instance)
            return read_page(connection, self._form, source, given, self._skipped)

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        if self._connection is None:
            self._connection = self._open.enter_context(connect(self._settings))
            self._form = replace(self._form, unreadable=self._unreadable_columns(self._connection))
        try:
            yield self._connection
            self._connection.rollback()
        except BaseException as error:
            self.close()
            if isinstance(error, psycopg.Error):
                raise ReadError(error) from None
            raise

    def _unreadable_columns(self, connection: Connection) -> frozenset[tuple[str, str]]:
        """Columns that only serving reads, and that the role has no right to read."""
        served = [
            (table.name, name)
            for table in self._catalogue.tables
            for column in table.columns
            if column.only_served
            for name in column.source_columns
        ]
        found = connection.execute(
            "select distinct name, read from unnest(%s::text[], %s::text[]) as served(name, read)"
            " where not has_column_privilege(name, read, 'select')",
            [[table for table, _ in served], [column for _, column in served]],
        )
        unreadable = frozenset((table, column) for table, column in found)
        if unreadable - self._form.unreadable:
            log.warning(
                "The role may not read %s, so these fields are withheld. `lakehouse grants` prints the SQL that gives"
                " the right; for the keys of caches, with --cache-keys.",
                ", ".join(sorted(f"{table}.{column}" for table, column in unreadable)),
            )
        return unreadable

    def _sequences(self, connection: Connection) -> dict[str, tuple[int, bool]]:
        each = sql.SQL(" union all ").join(
            sql.SQL("select {}, last_value, is_called from {}").format(sql.Literal(name), sql.Identifier(name))
            for name in sorted({stream.sequence for stream in self._streams})
        )
        return {name: (int(value), bool(called)) for name, value, called in connection.execute(each)}

    def _bound(self, stream: Stream, stored: Mapping[str, int], last_value: int, *, is_used: bool) -> SafeBound:
        bound = compute_bound(stored, self._writers.get(stream.name), (), sign=stream.direction, is_used=is_used)
        self._tell(stream.name, bound, last_value)
        return bound

    def _gapless_end(
        self, connection: Connection, stream: Stream, stored: Mapping[str, int], last_value: int, least: int
    ) -> int:
        linear = max(least, self._linear.get(stream.name, FIRST_ID))
        # Rows beyond the bound are looked for only when something moved.
        looked_at = (dict(stored), last_value, linear)
        if linear >= last_value or self._looked_at.get(stream.name) == looked_at:
            return linear
        self._looked_at[stream.name] = looked_at
        given = self._given(stream.name, linear, last_value, None)
        ids = connection.execute(server_sql.ids(self._catalogue, stream.name), given)
        return extend_without_gap(linear, (row[0] for row in ids), sign=1)

    def _last_row(self, connection: Connection, stream: Stream) -> int:
        row = connection.execute(server_sql.last(self._catalogue, stream.name)).fetchone()
        return max(int(row[0]), FIRST_ID) if row and row[0] is not None else FIRST_ID

    def _hear_of_writers(self, connection: Connection, stream: Stream, upto: int) -> None:
        """Remember who writes a stream of which no positions are kept: whichever process wants to."""
        heard_of = self._heard_of.setdefault(stream.name, set())
        after = self._linear.get(stream.name, 0)
        if upto > after:
            given = self._given(stream.name, after, upto, None)
            heard_of.update(
                row[0] for row in connection.execute(server_sql.writers(self._catalogue, stream.name), given)
            )

    def _sequence_holders(self, connection: Connection) -> Mapping[str, frozenset[str]]:
        """As :func:`sequence_holders`, for streams without positions that have IDs to settle."""
        waiting = {name for name, settled in self._settled.items() if settled.is_waiting}
        sequences = sorted({self._catalogue.stream(name).sequence for name in waiting})
        return sequence_holders(connection, sequences) if sequences else {}

    def _given(self, stream: str, after: int, upto: int, writer: str | None) -> dict[str, Any]:
        """Parameters of the statements in :mod:`rows`."""
        unnamed = self._unnamed(stream)
        return {"after": after, "upto": upto, "writer": writer, "unnamed": unnamed, "rows": PAGE_ROWS}

    def _unnamed(self, stream: str) -> str:
        return default_writer(self._writers.get(stream) or self._stored.get(stream, frozenset()))

    def _instances(self, stream: Stream, stored: Mapping[str, int]) -> set[str]:
        if stream.stream_positions:
            # A stream of which nobody is known to write has a position, too.
            return set(self._writers.get(stream.name, ())) | set(stored) or {MASTER}
        configured = {writer for writers in self._writers.values() for writer in writers}
        return {MASTER} | configured | self._heard_of[stream.name]

    def _tell(self, stream: str, bound: SafeBound, last_value: int) -> None:
        if last_value <= FIRST_ID:
            return
        state = (bound.rule, bound.missing, bound.unknown)
        if self._told.get(stream) == state:
            return
        self._told[stream] = state
        if bound.rule is BoundRule.MISSING_WRITER:
            names = ", ".join(bound.missing) or "somebody"
            log.warning("%s stands still: %s should write it and has no position yet", stream, names)
        if bound.rule is BoundRule.UNCONFIGURED_WRITER:
            log.warning(
                "%s goes no further than its writers %s, which are not configured and have a position. Add them to"
                " LAKEHOUSE_STREAM_WRITERS or SYNAPSE_CONFIG. Of writers that were removed, Synapse deletes the"
                " positions when one of its processes starts.",
                stream, ", ".join(bound.unknown),
            )  # fmt: skip
