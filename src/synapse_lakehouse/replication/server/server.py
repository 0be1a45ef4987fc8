"""Publishes the streams of a Synapse database to subscribers over TCP, in either dialect."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.connection import PING_SECONDS, SILENCE_SECONDS
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.encode import is_word
from synapse_lakehouse.replication.protocol.stream_tokens import Source
from synapse_lakehouse.replication.server.async_reader import Reader
from synapse_lakehouse.replication.server.shared_pages import Page, SharedPages
from synapse_lakehouse.replication.server.stream_reader import Feed, Heads
from synapse_lakehouse.replication.server.subscriber import Subscriber

log = get_printable_logger(__name__)

MOST_SUBSCRIBERS: Final = 100
MOST_OF_AN_ADDRESS: Final = 50
"""Connections from one address, so that no host can take all places."""


@dataclass(frozen=True)
class Timing:
    """Seconds. ``congestion``: how long a subscriber may leave its full buffer as it is."""

    poll: float = 0.25
    ping: float = PING_SECONDS
    silence: float = SILENCE_SECONDS
    congestion: float = 15.0


DOCUMENTED: Final = Timing()

Record = Callable[[str, Command], None]
"""What happens to a command that is recorded and not executed: given the subscriber's name and the command."""


class Server:
    """Reads a feed as it grows and serves it to whoever connects.

    :ivar heads: how far the streams are complete.
    """

    def __init__(self, feed: Feed, dialect: Dialect, name: str, record: Record, timing: Timing = DOCUMENTED) -> None:
        """:param name: the homeserver's name, as ``SERVER`` tells it."""
        self.dialect = dialect
        self.name = name
        self.timing = timing
        self.record = record
        self.heads = Heads({}, {}, {}, ())
        self._first = self.heads
        self._reader = Reader(feed)
        self._pages = SharedPages(self._reader, dialect)
        self._begin: dict[Source, int] = {}
        self._subscribers: set[Subscriber] = set()
        self._unsendable: set[Source] = set()
        self._number = 0

    async def serve(self, host: str, port: int, ready: Callable[[int], None], stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; then tell everybody.

        :param ready: called with the port, once it is open.
        :raises SourceError: when the database cannot be read at the start.
        :raises OSError: when the port cannot be opened.
        """
        try:
            await self._look()
            self._first = self.heads
            listening = await asyncio.start_server(self._connected, host, port)
            ready(listening.sockets[0].getsockname()[1])
            polling, asked = asyncio.create_task(self._poll()), asyncio.create_task(stop.wait())
            await asyncio.wait([polling, asked], return_when=asyncio.FIRST_COMPLETED)
            listening.close()
            await self._stop_all("server stopping")
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling
        finally:
            await self._reader.close()

    def sources(self) -> Sequence[Source]:
        """What can be subscribed to, in this dialect."""
        if self.dialect is Dialect.TOKENS:
            return [(stream, None) for stream in sorted(self.heads.linear)]
        return sorted(source for source in self.heads.by_instance if self._is_sendable(source))

    def begin(self, source: Source) -> int:
        """Where a source begins that came up while the server ran, for those who followed everything before."""
        return self._begin.get(source, self.heads.subscribed(source))

    async def page(self, source: Source, after: int, upto: int, *, is_live: bool) -> Page:
        """As :meth:`SharedPages.get`."""
        return await self._pages.get(source, after, upto, is_live=is_live)

    def pass_on(self, command: Command, sender: Subscriber) -> None:
        """Send a command of one client to all others. Who cannot take it now does not get it later."""
        for subscriber in self._subscribers - {sender}:
            subscriber.offer(command)

    def _is_sendable(self, source: Source) -> bool:
        stream, instance = source
        if instance is None or is_word(instance):
            return True
        if source not in self._unsendable:
            self._unsendable.add(source)
            log.warning(
                "Rows of stream %s by the writer %.60r are not sent, because no line can carry its name: it is empty,"
                " too long or has a space. The dialect of tokens sends these rows.",
                stream, instance,
            )  # fmt: skip
        return False

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._number += 1
        subscriber = Subscriber(self, self._number, reader, writer)
        if not await self._make_room(subscriber):
            log.warning("%s is turned away: there are %d subscribers already", subscriber, len(self._subscribers))
            await subscriber.refuse("too many connections")
            return
        self._subscribers.add(subscriber)
        try:
            await subscriber.run()
        finally:
            self._subscribers.discard(subscriber)

    async def _make_room(self, newcomer: Subscriber) -> bool:
        """Whether there is a place for ``newcomer``. A client that never asked for a stream gives its place up.

        Clients are people, too, who may take their time: without a newcomer none of them is disconnected.
        """
        alike = [one for one in self._subscribers if one.address == newcomer.address]
        crowd = alike if len(alike) >= MOST_OF_AN_ADDRESS else self._subscribers
        if crowd is not alike and len(crowd) < MOST_SUBSCRIBERS:
            return True
        idle = min((one for one in crowd if not one.has_subscribed), key=attrgetter("number"), default=None)
        if idle is None:
            return False
        log.warning("%s asked for no stream and gives its place to %s", idle, newcomer)
        self._subscribers.discard(idle)
        await idle.stop("too many connections, and no stream was asked for on this one")
        return True

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self.timing.poll)
            await self._look()

    async def _look(self) -> None:
        before = self.heads
        self.heads = await self._reader.heads()
        for source in self.heads.by_instance:
            if before.linear and source not in before.by_instance:
                # It wrote nothing before; of a stream without positions, it may just have been writing its first row.
                is_settling = source[0] in before.settling
                # Others may have gone on before its first row, which is not to be missed, was complete.
                first = self._first if source[0] in self._first.linear else before
                self._begin[source] = (
                    before.of(source) if is_settling else min(before.subscribed(source), first.subscribed(source))
                )
        if self._went_back(before):
            self._first = self.heads
            self._pages.forget()
            await self._stop_all("the database went back, by a restore or a failover: ask for tokens that it has")
        elif self.heads != before:
            for subscriber in self._subscribers:
                subscriber.wake()

    def _went_back(self, before: Heads) -> bool:
        # Who follows one writer, or a token that was asked for, may be ahead of what is complete.
        return any(self.heads.linear[stream] < token for stream, token in before.linear.items()) or any(
            self.heads.are_behind((stream, None), token) for stream, token in before.handed_out.items()
        )

    async def _stop_all(self, why: str) -> None:
        await asyncio.gather(*(one.stop(why) for one in list(self._subscribers)))
