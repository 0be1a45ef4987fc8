"""A Synapse database to which a test writes as Synapse does."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import psycopg

from synapse_lakehouse import catalogue
from synapse_lakehouse.catalogue import Stream
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.absent_objects import read_source_catalogue
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.replication.protocol.row_schemas import Release, row_schemas_of
from synapse_lakehouse.replication.server.settled_ids import Transactions, read_transactions
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader

CATALOGUE = catalogue.load_catalogue()


class Database:
    """Writes to the source of ``settings``; every statement commits. On exit all connections are closed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.read_transactions = read_transactions
        self._open = ExitStack()

    def __enter__(self) -> Self:
        assert self.settings.synapse_dsn
        connection = psycopg.connect(self.settings.synapse_dsn, autocommit=True, options="-c synchronous_commit=off")
        self._connection = self._open.enter_context(connection)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def open_reader(self, settle_seconds: float = 0.05, release: Release | None = None) -> DatabaseReader:
        reader = DatabaseReader(
            self.settings, CATALOGUE, settle_seconds, row_schemas_of(release), self.read_transactions
        )
        self._open.callback(reader.close)
        return reader

    def streams(self) -> Sequence[Stream]:
        """Return the streams of the Synapse release to which this database belongs."""
        return read_source_catalogue(CATALOGUE, self._connection).streams

    def enter_recovery(self) -> None:
        """Make readers that are opened later see the database as a standby."""

        def read_as_standby(connection: Connection) -> Transactions:
            return replace(read_transactions(connection), is_standby=True)

        self.read_transactions = read_as_standby

    def execute(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        """Delete all rows of streams and restart the sequences."""
        tables = {table.name for stream in CATALOGUE.streams for table, _ in CATALOGUE.backing_tables(stream.name)}
        filled = [
            name for name in sorted(tables | {"stream_positions"}) if self.execute(f"select 1 from {name} limit 1")
        ]
        restarts = [f"select setval('{stream.sequence}', 1, false)" for stream in CATALOGUE.streams]
        self.execute("; ".join([*restarts, *([f"truncate {', '.join(filled)} cascade"] if filled else [])]))

    def add_event(self, token: int, writer: str) -> None:
        self.execute(
            "insert into events (event_id, room_id, type, sender, stream_ordering, topological_ordering, depth,"
            " outlier, processed, instance_name) values (%s, '!r', 'm.room.message', '@a', %s, 1, 1, false, true, %s)",
            f"$e{token}", token, writer,
        )  # fmt: skip

    def add_state(self, token: int, writer: str, *keys: str) -> None:
        for key in keys:
            self.execute(
                "insert into current_state_delta_stream (stream_id, room_id, type, state_key, event_id, instance_name)"
                " values (%s, '!r', 'm.room.member', %s, %s, %s)",
                token, key, f"$e{token}", writer,
            )  # fmt: skip

    def add_invalidation(
        self, token: int, writer: str, cache: str = "get_user_by_id", keys: Sequence[str] | None = ("@a",), at: int = 1
    ) -> None:
        self.execute(
            "insert into cache_invalidation_stream_by_instance values (%s, %s, %s, %s, %s)",
            token, writer, cache, None if keys is None else list(keys), at,
        )  # fmt: skip

    def set_last_allocated(self, stream: str, token: int) -> None:
        """Set the last ID that the stream's sequence allocated."""
        self.execute("select setval(%s, %s)", CATALOGUE.stream(stream).sequence, token)

    def complete_events(self, token: int) -> None:
        """Set the last allocated ID of events and the positions of both persisters to ``token``."""
        self.set_last_allocated("events", token)
        for writer in ("ep1", "ep2"):
            self.set_position("events", writer, token)

    def set_position(self, stream: str, writer: str, token: int) -> None:
        self.execute(
            "insert into stream_positions values (%s, %s, %s) on conflict (stream_name, instance_name)"
            " do update set stream_id = excluded.stream_id",
            CATALOGUE.stream(stream).stream_positions, writer, token,
        )  # fmt: skip
