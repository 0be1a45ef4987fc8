"""A client that sends and receives lines, and servers for it."""

import asyncio
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.row_schemas import Release
from synapse_lakehouse.replication.server.server import DEFAULT_LIMITS, ReplicationServer, ServerLimits, ServerTiming
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from synapse_lakehouse.replication.tap.follower import ClientTiming
from tests.conftest import BIN, environment
from tests.replication.database import Database

SECONDS = 10
CONVERSATION_SECONDS = 120
"""Limit for a whole conversation: an idle server still sends PINGs."""
QUICK = ServerTiming(poll=0.02)


@dataclass(frozen=True)
class CountingTiming(ClientTiming):
    """Timing without delays that records the number of each attempt."""

    attempts: list[int] = field(default_factory=list)

    def delay_before(self, attempt: int) -> float:
        self.attempts.append(attempt)
        return 0.0


class Conversation:
    """A plain TCP connection to a server on loopback."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        assert isinstance(writer.transport, asyncio.Transport)
        self.transport = writer.transport

    def send(self, *lines: str) -> None:
        self.writer.write("".join(line + "\n" for line in lines).encode())

    async def receive(self) -> str | None:
        """Return the next line, or None at the end."""
        async with asyncio.timeout(SECONDS):
            return (await self.reader.readline()).decode().rstrip("\n") or None

    async def read_until(self, is_last: Callable[[str], bool]) -> list[str]:
        """Return the lines up to the last one, without PINGs."""
        lines = []
        while (line := await self.receive()) is not None:
            if not line.startswith("PING"):
                lines.append(line)
            if is_last(line):
                break
        return lines

    async def read_all(self) -> list[str]:
        return await self.read_until(lambda line: False)


@asynccontextmanager
async def connect(port: int, address: str = "127.0.0.1") -> AsyncIterator[Conversation]:
    """Yield a connection from ``address`` to ``port`` on loopback that is closed at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        yield Conversation(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def run_server(
    reader: DatabaseReader,
    dialect: Dialect,
    name: str = "synapse.example",
    timing: ServerTiming = QUICK,
    limits: ServerLimits = DEFAULT_LIMITS,
    recorded_commands: list[Command] | None = None,
    port: int = 0,
) -> AsyncIterator[int]:
    """Run a server and yield its port."""
    commands = recorded_commands if recorded_commands is not None else []
    server = ReplicationServer(reader, dialect, name, lambda _, command: commands.append(command), timing, limits)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.serve("127.0.0.1", port, ready.set_result, stop))
    try:
        finished, _ = await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
        if running in finished:
            running.result()
        yield ready.result()
    finally:
        stop.set()
        await running


@asynccontextmanager
async def run_serve_command(database: Database, dialect: Dialect, *options: str) -> AsyncIterator[int]:
    """Run ``lakehouse replicate serve`` and yield its port."""
    serve = await asyncio.create_subprocess_exec(
        BIN / "lakehouse", "replicate", "serve", "--dialect", dialect, "--port", "0", *options,
        env=environment(database.settings), cwd=database.settings.lakehouse_home, stdout=PIPE,
    )  # fmt: skip
    try:
        assert serve.stdout
        line = (await serve.stdout.readline()).decode()
        address = re.search(r" on 127\.0\.0\.1:(\d+), ", line)
        assert address, line
        yield int(address[1])
    finally:
        serve.terminate()
        await serve.wait()


ConversationStep = Callable[[Conversation], Awaitable[None]]


def run_conversations(
    source: Database,
    dialect: Dialect,
    *steps: ConversationStep,
    timing: ServerTiming = QUICK,
    limits: ServerLimits = DEFAULT_LIMITS,
    release: Release | None = None,
) -> list[Command]:
    """Serve ``source`` and run conversations one after the other; return the recorded commands."""
    recorded_commands: list[Command] = []

    async def scenario() -> None:
        reader = source.open_reader(release=release)
        async with run_server(
            reader, dialect, timing=timing, limits=limits, recorded_commands=recorded_commands
        ) as port:
            for step in steps:
                async with connect(port) as conversation, asyncio.timeout(CONVERSATION_SECONDS):
                    await step(conversation)

    asyncio.run(scenario())
    return recorded_commands
