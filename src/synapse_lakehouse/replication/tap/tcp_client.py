"""Follow a replication server over TCP, in either dialect, across reconnects."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.connection import ConnectionSilentError, ProtocolConnection, create_ping
from synapse_lakehouse.replication.protocol.dialect import Dialect, MalformedCommandError
from synapse_lakehouse.replication.protocol.framing import LineTooLongError
from synapse_lakehouse.replication.protocol.stream_tokens import EndlessTokenError, Progress
from synapse_lakehouse.replication.server.async_reader import AsyncReader
from synapse_lakehouse.replication.tap.follower import (
    DEFAULT_TIMING,
    ClientTiming,
    ConnectionAttempts,
    Item,
    process_command,
)

log = get_printable_logger(__name__)

_SHOWN_CHARACTERS: Final = 200


class WrongServerError(LakehouseError):
    """The server belongs to another homeserver."""


class ConnectionClosedError(LakehouseError):
    """The server closed the connection."""


class ProtocolViolationError(LakehouseError):
    """The server violates the protocol."""


@dataclass(frozen=True)
class ServerAddress:
    """Address and dialect of a server, and the name of the homeserver that it must belong to."""

    host: str
    port: int
    dialect: Dialect
    server_name: str


async def follow_server(
    address: ServerAddress,
    progress: Progress,
    reader: AsyncReader,
    *,
    streams: Sequence[str] = (),
    name: str = "synapse-lakehouse",
    timing: ClientTiming = DEFAULT_TIMING,
) -> AsyncGenerator[Item, None]:
    """Yield everything that the server sends, without end; reconnect after every disconnect.

    The client resumes from ``progress``, and moves ``progress`` before it yields an item. A caller that stores the
    positions together with the items receives each token once, also after a restart.

    :param reader: the database to read missed tokens from.
    :param streams: the streams to request in the dialect ``tokens``; new streams are followed from now on.
    :raises WrongServerError: if the server's name differs from the name in ``address``.
    """
    attempts = ConnectionAttempts(timing)
    while True:
        attempts.start()
        try:
            async with aclosing(_commands(address, progress, streams, name, timing)) as commands:
                async for command in commands:
                    async for item in process_command(command, progress, reader):
                        attempts.record_item(item)
                        yield item
        except (
            OSError,
            ConnectionClosedError,
            ProtocolViolationError,
            ConnectionSilentError,
            MalformedCommandError,
            LineTooLongError,
            EndlessTokenError,
        ) as error:
            log.warning("The connection to %s:%d ended: %s", address.host, address.port, error or type(error).__name__)
        finally:
            progress.mark_disconnected()
        await attempts.wait()


async def _commands(
    address: ServerAddress, progress: Progress, streams: Sequence[str], name: str, timing: ClientTiming
) -> AsyncGenerator[Command, None]:
    """Open a connection, subscribe, and yield the commands of the server until either side closes."""
    async with asyncio.timeout(timing.silence):
        connection = ProtocolConnection(*await asyncio.open_connection(address.host, address.port), address.dialect)
    connection.send(c.Name(name), create_ping(), *_subscriptions(address.dialect, progress, streams))
    pinging = asyncio.create_task(connection.keep_alive(timing.ping))
    is_identified = False
    try:
        async for command in connection.receive_commands(timing.silence):
            match command:
                case c.Error(message):
                    yield command
                    raise ConnectionClosedError(f"the server sent ERROR {message[:_SHOWN_CHARACTERS]!r}")
                case c.Server(server_name):
                    _check_server_name(server_name, address)
                    is_identified = True
                case c.Rdata() | c.Position() if not is_identified:
                    raise ProtocolViolationError("the server sent no SERVER command before the first row or position")
                case command if isinstance(command, c.CLIENT_COMMANDS):
                    raise ProtocolViolationError(f"{c.command_word(command)}: only clients send this command")
            if not isinstance(command, c.Ping):
                yield command
        raise ConnectionClosedError("the server closed the connection")
    except (
        ProtocolViolationError,
        ConnectionSilentError,
        MalformedCommandError,
        LineTooLongError,
        WrongServerError,
    ) as error:
        connection.send(c.Error(str(error)))
        raise
    finally:
        pinging.cancel()
        await connection.close()


def _check_server_name(server_name: str, address: ServerAddress) -> None:
    if server_name != address.server_name:
        raise WrongServerError(
            f"The server at {address.host}:{address.port} belongs to {server_name}, not to {address.server_name}. "
            "Correct the server's address or SYNAPSE_SERVER_NAME."
        )


def _subscriptions(dialect: Dialect, progress: Progress, streams: Sequence[str]) -> list[Command]:
    if dialect is Dialect.TOKENS:
        return [c.Replicate(stream, progress.positions.get((stream, None))) for stream in streams]
    return [c.Replicate()]
