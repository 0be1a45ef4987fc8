"""One client of the server: its subscriptions, its positions and its connection."""

import asyncio
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.connection import ConnectionSilentError, ProtocolConnection, create_ping
from synapse_lakehouse.replication.protocol.dialect import Dialect, MalformedCommandError
from synapse_lakehouse.replication.protocol.framing import LineTooLongError
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS
from synapse_lakehouse.replication.protocol.stream_tokens import MEMORY_ONLY_STREAMS, Source
from synapse_lakehouse.replication.protocol.streams_without_table import STREAMS_WITHOUT_TABLE
from synapse_lakehouse.streams.positions.configured_writers import MASTER

if TYPE_CHECKING:
    from synapse_lakehouse.replication.server.server import ReplicationServer

log = get_printable_logger(__name__)


MAX_CLIENT_LINE_BYTES: Final = 1 << 16
_SHOWN_CHARACTERS: Final = 60

_HTTP_METHODS: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
"""First words of HTTP requests. Such requests are refused, because the body of a web page's request could contain
commands."""


class _CommandRefusedError(LakehouseError):
    """A command is refused. The connection ends with an ERROR that contains the message."""


class Subscriber:
    """Serves one client. ``str`` returns the client's name for logs. Logs never contain the client's address.

    :ivar number: number of the connection.
    :ivar address: the client's address.
    :ivar has_subscribed: whether the client subscribed to a stream.
    """

    def __init__(
        self, server: "ReplicationServer", number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self.number = number
        self.address = str((writer.get_extra_info("peername") or ("",))[0])
        self._connection = ProtocolConnection(reader, writer, server.dialect, MAX_CLIENT_LINE_BYTES)
        self._name = ""
        self._positions: dict[Source, int] = {}
        self._awaited: set[Source] = set()
        self._caught_up: set[Source] = set()
        self._wants_all = False
        self._wake = asyncio.Event()
        self._has_advanced = asyncio.Event()
        self.has_subscribed = False
        self._received: Counter[str] = Counter()
        writer.transport.set_write_buffer_limits(server.limits.buffer_bytes)

    def __str__(self) -> str:
        return f"subscriber {self.number}" + (f" ({self._name})" if self._name else "")

    async def run(self) -> None:
        """Serve until either side closes the connection."""
        log.info("%s connected", self)
        timing = self._server.timing
        self._connection.send(c.Server(self._server.name), create_ping())
        tasks = [
            asyncio.create_task(coroutine)
            for coroutine in (
                self._connection.keep_alive(timing.ping, self._drain),
                self._receive_commands(timing.silence),
                self._send_rows(),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        bugs = []
        for result in results:
            if isinstance(
                result, _CommandRefusedError | ConnectionSilentError | MalformedCommandError | LineTooLongError
            ):
                log.warning("%s is disconnected: %s", self, result)
                self._connection.send(c.Error(str(result)))
            elif isinstance(result, Exception) and not isinstance(result, OSError):
                bugs.append(result)
        await self._connection.close(self._server.timing.closing)
        if bugs:
            raise bugs[0]
        log.info("%s disconnected; it sent %s", self, dict(self._received) or "no command")

    async def refuse(self, reason: str) -> None:
        """Send the server's name and an ERROR, and close the connection."""
        self._connection.send(c.Server(self._server.name))
        await self.stop(reason)

    async def stop(self, reason: str) -> None:
        """Send an ERROR and close the connection."""
        self._connection.send(c.Error(reason))
        await self._connection.close(self._server.timing.closing)

    def offer(self, command: Command) -> None:
        """Send ``command`` if the send buffer has room; otherwise drop it."""
        if self._connection.unsent_bytes < self._server.limits.buffer_bytes:
            self._connection.send(command)

    def wake(self) -> None:
        """Look for rows to send."""
        self._wake.set()

    async def _receive_commands(self, silence: float) -> None:
        async for command in self._connection.receive_commands(silence):
            if not self._handle(command):
                return
            await self._drain()
        await self._send_remaining_rows()

    async def _send_remaining_rows(self) -> None:
        """Send rows up to the current positions, to a client that closed its side, such as ``printf`` with netcat."""
        ends = {source: self._server.positions.position_of(source) for source in self._positions}
        while any(self._positions[source] < end for source, end in ends.items()):
            self._has_advanced.clear()
            await self._has_advanced.wait()
        self._connection.disable_buffering()
        await self._drain()

    def _handle(self, command: Command) -> bool:
        """Execute a command; return False if the command ends the connection."""
        self._received["unknown" if isinstance(command, c.Unknown) else c.command_word(command)] += 1
        match command:
            case c.Error():
                return False
            case c.Name(name):
                self._name = "".join(character for character in name if character.isprintable())[:_SHOWN_CHARACTERS]
            case c.Replicate(stream, token):
                self._subscribe(stream, token)
            case command if isinstance(command, c.SERVER_COMMANDS):
                raise _CommandRefusedError(f"{c.command_word(command)}: only servers send this command")
            case c.Unknown(word) if word in _HTTP_METHODS:
                raise _CommandRefusedError(f"{word}: this port does not accept HTTP")
            case c.Ping() | c.Unknown() | c.Sync():
                pass
            case _:
                self._server.record(str(self), command)
                if isinstance(command, c.RemoteServerUp) and self._server.dialect is not Dialect.TOKENS:
                    self._server.pass_on(command, self)
        return True

    def _subscribe(self, stream: str | None, token: int | None) -> None:
        self.has_subscribed = True
        if stream is None:
            self._subscribe_to_all()
        else:
            self._subscribe_to_stream(stream, token)
        self._wake.set()

    def _subscribe_to_all(self) -> None:
        self._wants_all = True
        self._follow_new_sources(self._server.positions.start_for_subscriber)
        commands = [_position(source, token, token) for source, token in self._positions.items()]
        if self._server.dialect is not Dialect.TOKENS:
            # Synapse sends 0 for a memory-only stream that had no rows since Synapse's start.
            commands += [c.Position(name, MASTER, 0, 0) for name in MEMORY_ONLY_STREAMS]
        self._connection.send(*sorted(commands, key=attrgetter("stream")))

    def _subscribe_to_stream(self, stream: str, token: int | None) -> None:
        positions = self._server.positions
        if stream not in positions.by_stream:
            # A client of a later release may request a stream that the source's release lacks.
            if stream not in STREAMS_WITHOUT_TABLE | ROW_SCHEMAS.keys():
                streams = ", ".join(sorted(positions.by_stream))
                raise _CommandRefusedError(f"REPLICATE: this stream does not exist. Streams: {streams}")
            log.warning("%s subscribes to %s, which has no table: the server sends no rows of it", self, stream)
            self._connection.send(_position((stream, None), 0, max(token or 0, 0)))
            self._awaited.add((stream, None))
            return
        if token is not None and token < 0:
            raise _CommandRefusedError(f"{stream}: tokens count up from 0, also in streams with negative IDs")
        source = (stream, None)
        is_ahead = token is not None and token > positions.last_allocated[stream]
        if is_ahead:
            # The POSITION shows the client that the stream is behind the requested token, and allocates it again.
            log.warning("%s requests %s after token %s, which was never allocated here", self, stream, token)
        self._caught_up.discard(source)
        start = positions.start_for_subscriber(source) if token is None or is_ahead else token
        self._positions[source] = start
        self._connection.send(_position(source, start, start))

    def _follow_awaited_streams(self) -> list[c.Position]:
        """Follow requested streams that the source has since an upgrade of Synapse."""
        present = {source for source in self._awaited if source[0] in self._server.positions.by_stream}
        self._awaited -= present
        starts = {source: self._server.start_of_new_source(source) for source in sorted(present)}
        self._positions |= starts
        return [_position(source, start, start) for source, start in starts.items()]

    def _follow_new_sources(self, find_start: Callable[[Source], int]) -> list[c.Position]:
        starts = {source: find_start(source) for source in self._server.sources() if source not in self._positions}
        self._positions |= starts
        return [_position(source, start, start) for source, start in starts.items()]

    async def _send_rows(self) -> None:
        """Send the rows of each stream in order, as fast as the client reads them."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._connection.send(*self._follow_awaited_streams())
            if self._wants_all:
                self._connection.send(*self._follow_new_sources(self._server.start_of_new_source))
            while await self._send_next_pages():
                pass

    async def _send_next_pages(self) -> bool:
        """Send a page of each source with new rows; return whether a page was sent."""
        has_sent = False
        for source, after in list(self._positions.items()):
            end = self._server.positions.position_of(source)
            if end <= after:
                self._caught_up.add(source)
                continue
            has_sent = True
            page = await self._server.read_page(source, after, end, is_live=source in self._caught_up)
            # A new subscription may have moved the position meanwhile.
            if self._positions[source] != after:
                continue
            self._connection.send_lines(page.lines)
            last = after if page.last is None else page.last
            if page.upto > last:
                self._connection.send(_position(source, last, page.upto))
            self._positions[source] = page.upto
            self._has_advanced.set()
            await self._drain()
        return has_sent

    async def _drain(self) -> None:
        try:
            await self._connection.drain(self._server.timing.congestion)
        except TimeoutError:
            log.warning(
                "%s reads too slowly and is disconnected; unsent bytes: %d", self, self._connection.unsent_bytes
            )
            self._connection.abort()
            raise ConnectionAbortedError from None


def _position(source: Source, previous: int, token: int) -> c.Position:
    stream, instance = source
    return c.Position(stream, instance, None if instance is None else previous, token)
