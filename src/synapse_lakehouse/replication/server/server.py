"""Serve the streams of a Synapse database to subscribers over TCP, in either dialect."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.connection import CLOSING_SECONDS, PING_SECONDS, SILENCE_SECONDS
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.encode import is_valid_word
from synapse_lakehouse.replication.protocol.stream_tokens import Source
from synapse_lakehouse.replication.server.async_reader import AsyncReader
from synapse_lakehouse.replication.server.shared_pages import EncodedPage, SharedPages
from synapse_lakehouse.replication.server.stream_positions import StreamPositions
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from synapse_lakehouse.replication.server.subscriber import Subscriber

log = get_printable_logger(__name__)


@dataclass(frozen=True)
class ServerTiming:
    """Durations in seconds. ``congestion``: time for which a subscriber may stop reading."""

    poll: float = 0.25
    ping: float = PING_SECONDS
    silence: float = SILENCE_SECONDS
    congestion: float = 15.0
    closing: float = CLOSING_SECONDS


@dataclass(frozen=True)
class ServerLimits:
    """Limits: connections in total, connections from one address, and bytes in a send buffer.

    The buffer of a slow subscriber exceeds its limit by at most one page of rows.
    """

    subscribers: int = 100
    per_address: int = 50
    buffer_bytes: int = 4 << 20


DEFAULT_TIMING: Final = ServerTiming()
DEFAULT_LIMITS: Final = ServerLimits()

RecordCommand = Callable[[str, Command], None]
"""A function that records a command that is not executed. Arguments: the subscriber's name, and the command."""


class ReplicationServer:
    """Polls the database and serves its streams to subscribers.

    :ivar positions: the tokens up to which the streams are complete.
    """

    def __init__(
        self,
        reader: DatabaseReader,
        dialect: Dialect,
        name: str,
        record: RecordCommand,
        timing: ServerTiming = DEFAULT_TIMING,
        limits: ServerLimits = DEFAULT_LIMITS,
    ) -> None:
        """:param name: the homeserver's name, for the ``SERVER`` command."""
        self.dialect = dialect
        self.name = name
        self.timing = timing
        self.limits = limits
        self.record = record
        self.positions = StreamPositions({}, {}, {}, ())
        self._first_positions = self.positions
        self._reader = AsyncReader(reader)
        self._pages = SharedPages(self._reader, dialect)
        self._new_source_starts: dict[Source, int] = {}
        self._subscribers: set[Subscriber] = set()
        self._unsendable: set[Source] = set()
        self._number = 0

    async def serve(self, host: str, port: int, ready: Callable[[int], None], stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; then send an ERROR to all subscribers.

        :param ready: called with the port once it is open.
        :raises SourceError: if the database cannot be read at the start.
        :raises OSError: if the port cannot be opened.
        """
        try:
            await self._update_positions()
            self._first_positions = self.positions
            listener = await asyncio.start_server(self._serve_connection, host, port)
            ready(listener.sockets[0].getsockname()[1])
            polling, stopping = asyncio.create_task(self._poll()), asyncio.create_task(stop.wait())
            await asyncio.wait([polling, stopping], return_when=asyncio.FIRST_COMPLETED)
            listener.close()
            await self._stop_all("server stopping")
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling
        finally:
            await self._reader.close()

    def sources(self) -> Sequence[Source]:
        """Return the sources that a client can subscribe to in this dialect."""
        if self.dialect is Dialect.TOKENS:
            return [(stream, None) for stream in sorted(self.positions.by_stream)]
        return sorted(source for source in self.positions.by_instance if self._is_sendable(source))

    def start_of_new_source(self, source: Source) -> int:
        """Return the token after which a subscriber to all streams follows a source that is newer than the server."""
        return self._new_source_starts.get(source, self.positions.start_for_subscriber(source))

    async def read_page(self, source: Source, after: int, upto: int, *, is_live: bool) -> EncodedPage:
        """Like :meth:`SharedPages.get`."""
        return await self._pages.get(source, after, upto, is_live=is_live)

    def pass_on(self, command: Command, sender: Subscriber) -> None:
        """Send a command of one client to all other clients. A client whose buffer is full never receives it."""
        for subscriber in self._subscribers - {sender}:
            subscriber.offer(command)

    def _is_sendable(self, source: Source) -> bool:
        stream, instance = source
        if instance is None or is_valid_word(instance):
            return True
        if source not in self._unsendable:
            self._unsendable.add(source)
            log.warning(
                "Rows of stream %s by the writer %.60r are not sent, because the writer's name is empty, too long or"
                " contains a space. The dialect `tokens` sends these rows.",
                stream, instance,
            )  # fmt: skip
        return False

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._number += 1
        subscriber = Subscriber(self, self._number, reader, writer)
        if not await self._make_room(subscriber):
            log.warning("%s is refused: there are %d subscribers already", subscriber, len(self._subscribers))
            await subscriber.refuse("too many connections")
            return
        self._subscribers.add(subscriber)
        try:
            await subscriber.run()
        finally:
            self._subscribers.discard(subscriber)

    async def _make_room(self, newcomer: Subscriber) -> bool:
        """Return whether ``newcomer`` can be served. If needed, disconnect the oldest client without a subscription.

        A client may be a person that types slowly, so no client is disconnected without need.
        """
        same_address = [subscriber for subscriber in self._subscribers if subscriber.address == newcomer.address]
        is_address_full = len(same_address) >= self.limits.per_address
        if not is_address_full and len(self._subscribers) < self.limits.subscribers:
            return True
        candidates = same_address if is_address_full else self._subscribers
        idle_clients = [subscriber for subscriber in candidates if not subscriber.has_subscribed]
        if not idle_clients:
            return False
        idle = min(idle_clients, key=attrgetter("number"))
        log.warning("%s has not subscribed to a stream and is disconnected in favour of %s", idle, newcomer)
        self._subscribers.discard(idle)
        await idle.stop("too many connections, and this client has not subscribed to a stream")
        return True

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self.timing.poll)
            await self._update_positions()

    async def _update_positions(self) -> None:
        before = self.positions
        self.positions = await self._reader.read_positions()
        for source in self.positions.by_instance:
            if before.by_stream and source not in before.by_instance:
                self._new_source_starts[source] = self._find_start(source, before)
        for stream in self.positions.by_stream:
            if before.by_stream and stream not in before.by_stream:
                self._new_source_starts[stream, None] = before.position_of((stream, None))
        if self._has_gone_back(before):
            self._first_positions = self.positions
            self._pages.clear()
            await self._stop_all("the database was restored or failed over: subscribe again without old tokens")
        elif self.positions != before:
            for subscriber in self._subscribers:
                subscriber.wake()

    def _find_start(self, source: Source, before: StreamPositions) -> int:
        """Return the start of a source that was not in the positions ``before``."""
        stream, _ = source
        if stream in before.without_positions:
            # The transaction of the source's first row may have been open when the positions ``before`` were read.
            return before.position_of(source)
        # Other writers may have advanced before the first row of the new writer was complete.
        first = self._first_positions if stream in self._first_positions.by_stream else before
        return min(before.start_for_subscriber(source), first.start_for_subscriber(source))

    def _has_gone_back(self, before: StreamPositions) -> bool:
        # A subscriber may be ahead of the complete token, because it follows one writer or requested a later token.
        # A database that was restored to an earlier release of Synapse lacks streams.
        return any(
            self.positions.by_stream.get(stream, 0) < token for stream, token in before.by_stream.items()
        ) or any(
            self.positions.is_never_allocated((stream, None), token) for stream, token in before.last_allocated.items()
        )

    async def _stop_all(self, reason: str) -> None:
        await asyncio.gather(*(subscriber.stop(reason) for subscriber in list(self._subscribers)))
