"""One connection of the server: what it asked for, how far it has got it, and whether it is still there."""

import asyncio
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.connection import Connection, ConnectionSilentError, ping
from synapse_lakehouse.replication.protocol.dialect import Dialect, MalformedCommandError
from synapse_lakehouse.replication.protocol.framing import LineTooLongError
from synapse_lakehouse.replication.protocol.retired_streams import WITHOUT_TABLE
from synapse_lakehouse.replication.protocol.stream_tokens import MEMORY_ONLY, Source
from synapse_lakehouse.streams.positions.writers import MASTER

if TYPE_CHECKING:
    from synapse_lakehouse.replication.server.server import Server

log = get_printable_logger(__name__)

BUFFER_BYTES: Final = 4 << 20
"""What may wait for a subscriber that is slow to read, besides one page of rows."""

LONGEST_LINE: Final = 1 << 16
_NAME_SHOWN: Final = 60


_OF_HTTP: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
"""First words of requests by web pages, whose bodies could otherwise be commands."""


class _CommandRefusedError(LakehouseError):
    """The connection ends with an ERROR that says why."""


class Subscriber:
    """Serves one client. ``str`` of it is what to call it in logs, which never hold its address.

    :ivar number: counts connections.
    :ivar address: from where it connects.
    :ivar has_subscribed: whether it asked for a stream.
    """

    def __init__(
        self, server: "Server", number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self.number = number
        self.address = str((writer.get_extra_info("peername") or ("",))[0])
        self._connection = Connection(reader, writer, server.dialect, LONGEST_LINE)
        self._name = ""
        self._cursors: dict[Source, int] = {}
        self._caught_up: set[Source] = set()
        self._wants_all = False
        self._wake = asyncio.Event()
        self._has_moved = asyncio.Event()
        self.has_subscribed = False
        self._received: Counter[str] = Counter()
        writer.transport.set_write_buffer_limits(BUFFER_BYTES)

    def __str__(self) -> str:
        return f"subscriber {self.number}" + (f" ({self._name})" if self._name else "")

    async def run(self) -> None:
        """Serve until either side ends the connection."""
        log.info("%s connected", self)
        timing = self._server.timing
        self._connection.send(c.Server(self._server.name), ping())
        tasks = [
            asyncio.create_task(one)
            for one in (
                self._connection.keep_alive(timing.ping, self._drain),
                self._listen(timing.silence),
                self._stream(),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        faults = []
        for end in ends:
            if isinstance(end, _CommandRefusedError | ConnectionSilentError | MalformedCommandError | LineTooLongError):
                log.warning("%s is disconnected: %s", self, end)
                self._connection.send(c.Error(str(end)))
            elif isinstance(end, Exception) and not isinstance(end, OSError):
                faults.append(end)
        await self._connection.close()
        if faults:
            raise faults[0]
        log.info("%s is gone; it sent %s", self, dict(self._received) or "nothing")

    async def refuse(self, why: str) -> None:
        """Say which server this is, and end the connection with an ERROR."""
        self._connection.send(c.Server(self._server.name))
        await self.stop(why)

    async def stop(self, why: str) -> None:
        """End the connection with an ERROR."""
        self._connection.send(c.Error(why))
        await self._connection.close()

    def offer(self, command: Command) -> None:
        """Send ``command`` unless too much waits for the client already: nothing resends such commands."""
        if self._connection.waiting < BUFFER_BYTES:
            self._connection.send(command)

    def wake(self) -> None:
        """There may be more to send."""
        self._wake.set()

    async def _listen(self, silence: float) -> None:
        async for command in self._connection.received(silence):
            if not self._handle(command):
                return
            await self._drain()
        await self._finish()

    async def _finish(self) -> None:
        """Send what a client asked for that sends nothing more, as ``printf`` piped into netcat."""
        ends = {source: self._server.heads.of(source) for source in self._cursors}
        while any(self._cursors[source] < end for source, end in ends.items()):
            self._has_moved.clear()
            await self._has_moved.wait()
        self._connection.hold_nothing()
        await self._drain()

    def _handle(self, command: Command) -> bool:
        """Do what a command asks for; False when it ends the connection."""
        self._received["unknown" if isinstance(command, c.Unknown) else c.word(command)] += 1
        match command:
            case c.Error():
                return False
            case c.Name(name):
                self._name = "".join(one for one in name if one.isprintable())[:_NAME_SHOWN]
            case c.Replicate(stream, token):
                self._subscribe(stream, token)
            case command if isinstance(command, c.ONLY_SERVERS_SEND):
                raise _CommandRefusedError(f"{c.word(command)}: only servers send this")
            case c.Unknown(word) if word in _OF_HTTP:
                raise _CommandRefusedError(f"{word}: this port does not speak HTTP")
            case c.Ping() | c.Unknown() | c.Sync():
                pass
            case _:
                self._server.record(str(self), command)
                if isinstance(command, c.RemoteServerUp) and self._server.dialect is not Dialect.TOKENS:
                    self._server.pass_on(command, self)
        return True

    def _subscribe(self, stream: str | None, token: int | None) -> None:
        heads = self._server.heads
        self.has_subscribed = True
        if stream is None:
            self._wants_all = True
            self._follow_new(heads.subscribed)
            positions = [_position(source, at, at) for source, at in self._cursors.items()]
            if self._server.dialect is not Dialect.TOKENS:
                # Synapse says 0 of a stream that it keeps in memory and did not write since it started.
                positions += [c.Position(name, MASTER, 0, 0) for name in MEMORY_ONLY]
            self._connection.send(*sorted(positions, key=attrgetter("stream")))
        elif stream in WITHOUT_TABLE and stream not in heads.linear:
            log.warning("%s asks for %s, which nobody writes to the database: it gets no rows of it", self, stream)
            self._connection.send(_position((stream, None), 0, max(token or 0, 0)))
        elif stream not in heads.linear:
            raise _CommandRefusedError(
                f"REPLICATE: there is no such stream. There are: {', '.join(sorted(heads.linear))}"
            )
        elif token is not None and token < 0:
            raise _CommandRefusedError(f"{stream}: tokens count up from 0, also those of streams with negative ids")
        else:
            source = (stream, None)
            is_ahead = token is not None and token > heads.handed_out[stream]
            if is_ahead:
                # The answer says that the stream is behind: who follows it is to know that tokens are given out again.
                log.warning("%s asks for %s after %s, never handed out: another database?", self, stream, token)
            self._caught_up.discard(source)
            at = self._cursors[source] = heads.subscribed(source) if token is None or is_ahead else token
            self._connection.send(_position(source, at, at))
        self._wake.set()

    def _follow_new(self, begin: Callable[[Source], int]) -> list[c.Position]:
        new = {source: begin(source) for source in self._server.sources() if source not in self._cursors}
        self._cursors |= new
        return [_position(source, at, at) for source, at in new.items()]

    async def _stream(self) -> None:
        """Send every row, in the order of its stream, at the subscriber's pace."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._wants_all:
                self._connection.send(*self._follow_new(self._server.begin))
            while await self._advance():
                pass

    async def _advance(self) -> bool:
        moved = False
        for source, after in list(self._cursors.items()):
            head = self._server.heads.of(source)
            if head <= after:
                self._caught_up.add(source)
                continue
            moved = True
            page = await self._server.page(source, after, head, is_live=source in self._caught_up)
            if self._cursors[source] != after:
                continue
            self._connection.send_lines(page.lines)
            last = after if page.last is None else page.last
            if page.upto > last:
                self._connection.send(_position(source, last, page.upto))
            self._cursors[source] = page.upto
            self._has_moved.set()
            await self._drain()
        return moved

    async def _drain(self) -> None:
        try:
            await self._connection.drain(self._server.timing.congestion)
        except TimeoutError:
            log.warning("%s does not keep up: %d bytes wait for it, so it is cut off", self, self._connection.waiting)
            self._connection.abort()
            raise ConnectionAbortedError from None


def _position(source: Source, previous: int, token: int) -> c.Position:
    stream, instance = source
    return c.Position(stream, instance, None if instance is None else previous, token)
