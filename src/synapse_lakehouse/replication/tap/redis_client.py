"""Follow the commands that Synapse's processes publish on Redis, without publishing any.

Redis stores no messages for absent subscribers, so missed tokens are read from the database.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.commands import Command, Unknown
from synapse_lakehouse.replication.protocol.connection import ConnectionSilentError
from synapse_lakehouse.replication.protocol.decode import parse_line
from synapse_lakehouse.replication.protocol.dialect import Dialect, MalformedCommandError
from synapse_lakehouse.replication.protocol.stream_tokens import EndlessTokenError, MissedRange, Progress
from synapse_lakehouse.replication.server.async_reader import AsyncReader
from synapse_lakehouse.replication.tap.follower import (
    DEFAULT_TIMING,
    ClientTiming,
    ConnectionAttempts,
    Item,
    process_command,
)

log = get_printable_logger(__name__)

CLIENT_NAME: Final = "synapse-lakehouse"
"""The tap's name in Redis's list of clients."""

_WITH_TOKEN: Final = (b"RDATA ", b"POSITION ")


async def follow_redis(
    url: str, server_name: str, progress: Progress, reader: AsyncReader, timing: ClientTiming = DEFAULT_TIMING
) -> AsyncGenerator[Item, None]:
    """Yield everything that is published for ``server_name``, without end; reconnect after every disconnect.

    After each subscription, the rows after ``progress`` are read from the database first; messages wait meanwhile. Only
    the channel with the homeserver's name is used, because the channel of users' addresses contains access tokens.

    :param url: Redis's URL, such as ``redis://127.0.0.1:6379``. The URL may contain a password, so it is never logged.
    """
    attempts = ConnectionAttempts(timing)
    while True:
        attempts.start()
        try:
            async with aclosing(_messages(url, server_name, timing)) as messages:
                async for data in messages:
                    if data is None:
                        async for item in _catch_up(progress, reader):
                            attempts.record_item(item)
                            yield item
                        progress.mark_caught_up()
                    elif command := _parse_message(data):
                        async for item in process_command(command, progress, reader):
                            attempts.record_item(item)
                            yield item
        except (RedisError, OSError, ConnectionSilentError, EndlessTokenError, MalformedCommandError) as error:
            log.warning("The connection to Redis ended: %s", type(error).__name__ if not str(error) else error)
        finally:
            progress.mark_disconnected()
        await attempts.wait()


def is_redis_url(url: str) -> bool:
    """Return whether ``url`` can be parsed. The library's own error may quote the password."""
    try:
        parse_url(url)
    except ValueError:
        return False
    return True


async def _messages(url: str, channel: str, timing: ClientTiming) -> AsyncGenerator[bytes | None, None]:
    """Yield messages of ``channel``, and None once the subscription is active."""
    # A reconnect by the library would hide that messages were missed.
    client = Redis.from_url(
        url, client_name=CLIENT_NAME, retry=Retry(NoBackoff(), 0), socket_connect_timeout=timing.silence
    )
    async with client, client.pubsub() as subscription:
        await subscription.subscribe(channel)
        wait = _Wait()
        watching = asyncio.create_task(_end_silent_connection(subscription, wait, timing))
        try:
            while True:
                wait.started = monotonic()
                message: dict[str, Any] | None = await subscription.get_message(timeout=None)
                wait.started = None
                if message is not None and message["type"] == "subscribe":
                    yield None
                elif message is not None and message["type"] == "message":
                    yield message["data"]
        except RedisError:
            if watching.done():
                raise ConnectionSilentError(timing.silence) from None
            raise
        finally:
            watching.cancel()


@dataclass
class _Wait:
    started: float | None = None


async def _end_silent_connection(subscription: PubSub, wait: _Wait, timing: ClientTiming) -> None:
    """Send PINGs while no message arrives; end the connection if Redis does not answer them."""
    while True:
        await asyncio.sleep(timing.ping)
        silent_seconds = 0.0 if wait.started is None else monotonic() - wait.started
        if silent_seconds >= timing.silence and subscription.connection:
            await subscription.connection.disconnect(nowait=True)
            return
        if silent_seconds >= timing.ping:
            await subscription.ping()


def _parse_message(data: bytes) -> Command | None:
    """Return the command of a message; None for a blank message.

    :raises MalformedCommandError: if the message had a token, which then has to be read from the database.
    """
    try:
        return parse_line(data, Dialect.REDIS)
    except MalformedCommandError as refused:
        if data.startswith(_WITH_TOKEN):
            raise
        log.warning("A message cannot be parsed: %s", refused)
        word, _, rest = data.decode("utf-8", "surrogateescape").partition(" ")
        return Unknown(word, rest)


async def _catch_up(progress: Progress, reader: AsyncReader) -> AsyncIterator[Item]:
    """Yield the database's rows after ``progress``. Sources without a position are followed from now on."""
    positions = await reader.read_positions()
    for source in sorted({*progress.positions, *positions.by_instance}, key=str):
        stream, _ = source
        if stream not in positions.by_stream:
            continue
        position = progress.start_of(source)
        if position is None:
            if (start := positions.start_for_new_source(source)) is not None:
                progress.advance(source, start)
        elif positions.is_never_allocated(source, position):
            yield progress.rewind(source, positions.latest(source))
        elif position < (latest := positions.latest(source)):
            async for item in reader.read_missed(MissedRange(*source, position, latest), progress):
                yield item
