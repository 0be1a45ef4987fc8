"""Read the positions of all streams from Synapse's database."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Stream
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.stream_tokens import Source
from synapse_lakehouse.replication.server import sql as server_sql
from synapse_lakehouse.replication.server.settled_ids import SettledIds, Transactions, read_sequence_holders
from synapse_lakehouse.replication.server.stream_positions import StreamPositions
from synapse_lakehouse.replication.server.stream_writers import StreamWriters
from synapse_lakehouse.streams.positions.configured_writers import MASTER
from synapse_lakehouse.streams.positions.safe_bound import FIRST_ID, SafeBound, compute_bound, extend_without_gap

log = get_printable_logger(__name__)

ReadTransactions = Callable[[Connection], Transactions]


@dataclass(frozen=True)
class _Snapshot:
    """Content of one PostgreSQL snapshot. ``holders``: transactions that had locks on sequences before the snapshot."""

    connection: Connection
    positions: Mapping[str, Mapping[str, int]]
    sequences: dict[str, tuple[int, bool]]
    transactions: Transactions
    holders: Mapping[str, frozenset[str]]


class PositionReader:
    """Reads positions repeatedly. Positions never decrease, unless the database was restored or failed over."""

    def __init__(
        self,
        catalogue: Catalogue,
        writers: StreamWriters,
        settle_seconds: float,
        read_transactions: ReadTransactions,
    ) -> None:
        self._catalogue = catalogue
        self._streams: Sequence[Stream] = ()
        self._writers = writers
        self._settle_seconds = settle_seconds
        self._read_transactions = read_transactions
        self._complete: dict[str, int] = {}
        self._settled: dict[str, SettledIds] = {}
        self._unbounded: dict[str, int] = {}
        self._searched_for_gaps: dict[str, object] = {}

    def prepare(self, catalogue: Catalogue, streams: Sequence[Stream]) -> None:
        """Read these streams from now on, from the tables of ``catalogue``. Forget the positions of other streams."""
        self._catalogue, self._streams = catalogue, streams
        names = {stream.name for stream in streams}
        for state in (self._complete, self._settled, self._unbounded, self._searched_for_gaps):
            for name in state.keys() - names:
                state.pop(name)

    def read(self, connection: Connection) -> StreamPositions:
        """Return the current positions. ``connection`` must not have an open transaction."""
        self._writers.warn_of_provisional(self._streams)
        snapshot = self._read_snapshot(connection)
        by_instance: dict[Source, int] = {}
        unbounded: dict[str, int] = {}
        for stream in self._streams:
            stored = snapshot.positions.get(stream.stream_positions or "", {})
            self._writers.with_position[stream.name] = frozenset(stored)
            complete, is_unbounded = self._complete_token(snapshot, stream, stored)
            if is_unbounded:
                unbounded[stream.name] = self._unbounded[stream.name]
            complete = max(complete, self._complete.get(stream.name, FIRST_ID))
            self._complete[stream.name] = complete
            for writer in self._writers.all_of(stream):
                is_unnamed = self._writers.may_be_unnamed(stream, writer)
                own = FIRST_ID if is_unnamed else stream.direction * stored.get(writer, 0)
                by_instance[(stream.name, writer)] = max(own, complete)
        return StreamPositions(
            dict(self._complete),
            by_instance,
            {stream.name: snapshot.sequences[stream.sequence][0] for stream in self._streams},
            {stream.name for stream in self._streams if not stream.stream_positions},
            snapshot.transactions.is_standby,
            unbounded,
        )

    def _read_snapshot(self, connection: Connection) -> _Snapshot:
        # The lock holders are read before the snapshot, so that the snapshot shows the rows of each holder that ended
        # in between.
        holders = self._read_holders(connection)
        connection.rollback()
        positions: dict[str, dict[str, int]] = {}
        for name, instance, token in connection.execute(
            "select stream_name, coalesce(instance_name, %s), stream_id from stream_positions", [MASTER]
        ):
            positions.setdefault(name, {})[instance] = token
        sequences = self._read_sequences(connection)
        return _Snapshot(connection, positions, sequences, self._read_transactions(connection), holders)

    def _complete_token(self, snapshot: _Snapshot, stream: Stream, stored: Mapping[str, int]) -> tuple[int, bool]:
        """Return the token up to which a stream is complete, and whether the stream is unbounded."""
        connection, is_standby = snapshot.connection, snapshot.transactions.is_standby
        last_value, is_used = snapshot.sequences[stream.sequence]
        if not is_standby:
            self._forget_if_gone_back(stream.name, last_value)
        bound = self._read_bound(stream, stored, last_value, is_used=is_used) if stream.stream_positions else None
        minimum = bound.minimum if bound else None
        if is_standby and minimum is None:
            # On a standby, a sequence may be up to 32 IDs ahead of the allocated IDs.
            last_value = self._read_last_token(connection, stream)
            snapshot.sequences[stream.sequence] = (last_value, is_used)
        if minimum is not None:
            return self._end_without_gap(connection, stream, stored, last_value, stream.direction * minimum), False
        if bound:
            if stream.name not in self._unbounded:
                self._unbounded[stream.name] = min(self._read_last_token(connection, stream), last_value)
            return FIRST_ID, True
        settled = self._settled.setdefault(stream.name, SettledIds(self._settle_seconds))
        complete = settled.advance(last_value, snapshot.holders.get(stream.sequence), snapshot.transactions)
        # The first call reads the writers of all rows, later calls only the writers of newly complete rows.
        has_read_rows = stream.name in self._writers.named_by_rows
        self._read_writers(connection, stream, complete if has_read_rows else last_value)
        return complete, False

    def _forget_if_gone_back(self, stream: str, last_value: int) -> None:
        former = max(tokens.get(stream, FIRST_ID) for tokens in (self._complete, self._unbounded))
        if last_value < former:
            log.warning("The database was restored or failed over: %s fell to %d from %d", stream, last_value, former)
            for state in (self._complete, self._searched_for_gaps, self._settled, self._unbounded):
                state.pop(stream, None)

    def _read_sequences(self, connection: Connection) -> dict[str, tuple[int, bool]]:
        """Return ``last_value`` and ``is_called`` of each sequence."""
        query = sql.SQL(" union all ").join(
            sql.SQL("select {}, last_value, is_called from {}").format(sql.Literal(name), sql.Identifier(name))
            for name in sorted({stream.sequence for stream in self._streams})
        )
        return {name: (int(value), bool(is_called)) for name, value, is_called in connection.execute(query)}

    def _read_bound(self, stream: Stream, stored: Mapping[str, int], last_value: int, *, is_used: bool) -> SafeBound:
        configured = self._writers.configured.get(stream.name)
        bound = compute_bound(stored, configured, (), sign=stream.direction, is_used=is_used)
        self._writers.warn_of_bound(stream.name, bound, last_value)
        return bound

    def _end_without_gap(
        self, connection: Connection, stream: Stream, stored: Mapping[str, int], last_value: int, minimum: int
    ) -> int:
        """Return the last token before the first token without a row above ``minimum``."""
        complete = max(minimum, self._complete.get(stream.name, FIRST_ID))
        # Search rows beyond the bound only after a change.
        state = (dict(stored), last_value, complete)
        if complete >= last_value or self._searched_for_gaps.get(stream.name) == state:
            return complete
        self._searched_for_gaps[stream.name] = state
        query = server_sql.build_token_page_query(self._catalogue, stream.name)
        rows = connection.execute(query, self._parameters(stream.name, complete, last_value))
        return extend_without_gap(complete, (row[0] for row in rows), sign=1)

    def _read_last_token(self, connection: Connection, stream: Stream) -> int:
        row = connection.execute(server_sql.build_last_token_query(self._catalogue, stream.name)).fetchone()
        return max(int(row[0]), FIRST_ID) if row and row[0] is not None else FIRST_ID

    def _read_writers(self, connection: Connection, stream: Stream, upto: int) -> None:
        """Read the writers of a stream without positions from the stream's rows, because any process may write it."""
        writers = self._writers.named_by_rows.setdefault(stream.name, set())
        if upto > (after := self._complete.get(stream.name, 0)):
            query = server_sql.build_writer_query(self._catalogue, stream.name)
            writers.update(row[0] for row in connection.execute(query, self._parameters(stream.name, after, upto)))

    def _read_holders(self, connection: Connection) -> Mapping[str, frozenset[str]]:
        """Like :func:`read_sequence_holders`, for streams without positions whose last IDs may be incomplete."""
        waiting = {name for name, settled in self._settled.items() if settled.is_waiting}
        sequences = sorted({self._catalogue.stream(name).sequence for name in waiting})
        return read_sequence_holders(connection, sequences) if sequences else {}

    def _parameters(self, stream: str, after: int, upto: int) -> dict[str, Any]:
        return server_sql.build_parameters(after, upto, None, self._writers.unnamed_writer(stream))
