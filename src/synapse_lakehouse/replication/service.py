"""Run the server or the tap until the process is stopped."""

import asyncio
import errno
import json
import logging
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, open_catalog
from synapse_lakehouse.replication.protocol.commands import Command
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.row_schemas import Release, row_schemas_of
from synapse_lakehouse.replication.protocol.stream_tokens import Progress
from synapse_lakehouse.replication.server.async_reader import AsyncReader
from synapse_lakehouse.replication.server.server import RecordCommand, ReplicationServer
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from synapse_lakehouse.replication.tap.redact_commands import redact_command
from synapse_lakehouse.replication.tap.redact_fields import RowRedactor
from synapse_lakehouse.replication.tap.redis_client import follow_redis, is_redis_url
from synapse_lakehouse.replication.tap.tcp_client import ServerAddress, follow_server
from synapse_lakehouse.replication.tap.write_items import write_items

RECORDED_BYTES: Final = 64 << 20
"""Size of the log of client commands."""
_LOG_FILES: Final = 4


class ReplicationServiceError(LakehouseError):
    """The server or the tap cannot start; the message names the remedy."""


def serve(
    settings: Settings,
    dialect: Dialect,
    host: str,
    port: int,
    report: Callable[[str], None],
    release: Release | None = None,
) -> None:
    """Serve the streams of the source until SIGINT or SIGTERM.

    :param release: the release of Synapse that defines the row formats; by default the newest.
    :raises ReplicationServiceError: if the port cannot be opened.
    :raises SourceError: if the database cannot be read, or this version of Synapse is not supported.
    """
    name = str(settings.synapse_server_name)
    reader = DatabaseReader(settings, catalogue.load_catalogue(), schemas=row_schemas_of(release), supported_only=True)
    server = ReplicationServer(reader, dialect, name, create_recorder(_log_folder(settings)))

    async def run() -> None:
        await server.serve(
            host,
            port,
            lambda opened: report(f"Serving the streams of {name} on {host}:{opened}, dialect {dialect}."),
            _stop_event(),
        )

    try:
        asyncio.run(run())
    except OSError as error:
        address_errors = (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL)
        if error.errno not in address_errors and not isinstance(error, socket.gaierror):
            raise
        raise ReplicationServiceError(
            f"Port {port} on {host} cannot be opened ({error.strerror}). Choose another --port or --host."
        ) from None


def tap(settings: Settings, dialect: Dialect, host: str, port: int, report: Callable[[str], None]) -> None:
    """Receive commands from Redis, or from a server over TCP, and write them to the lake until SIGINT or SIGTERM.

    :raises ReplicationServiceError: if LAKEHOUSE_REDIS_URL is missing or invalid.
    :raises SourceError: if the database, the source of missed rows, cannot be read at the start.
    :raises WrongServerError: if the server belongs to another homeserver.
    """
    from synapse_lakehouse.replication.tap.iceberg_sink import Batch, IcebergSink

    declared, name, url = catalogue.load_catalogue(), str(settings.synapse_server_name), settings.lakehouse_redis_url
    if dialect is Dialect.REDIS and not url:
        raise ReplicationServiceError(
            "LAKEHOUSE_REDIS_URL is not set. Set it to the URL of the Redis that Synapse's workers use."
        )
    if dialect is Dialect.REDIS and not is_redis_url(str(url)):
        raise ReplicationServiceError(
            "LAKEHOUSE_REDIS_URL is not a valid URL of a Redis server. The format is "
            "redis://:password@host:6379. In the password write / as %2F, @ as %40, # as %23, ? as %3F and % as %25."
        )
    source = "redis" if dialect is Dialect.REDIS else "tcp"
    sink = IcebergSink(open_catalog(settings), source, dialect)
    alive_file = get_alive_file(settings)
    progress = Progress(sink.read_positions())
    streams, redactor = [stream.name for stream in declared.streams], RowRedactor(declared)

    async def run() -> None:
        reader = AsyncReader(DatabaseReader(settings, declared))
        try:
            await write_commands(reader)
        finally:
            await reader.close()

    async def write_commands(reader: AsyncReader) -> None:
        if dialect is Dialect.REDIS:
            items = follow_redis(str(url), name, progress, reader)
        else:
            items = follow_server(ServerAddress(host, port, dialect, name), progress, reader, streams=streams)
        if dialect is not Dialect.TOKENS:
            # Fail now if SYNAPSE_DSN is wrong. After the first success the reader waits for the end of an outage.
            await reader.read_positions()
        report(f"Writing the replication commands of {name} to {COMMANDS_TABLE}.")
        await write_items(
            items, progress, sink, lambda: Batch(redactor, source, dialect), _stop_event(),
            on_tick=alive_file.touch, can_read=lambda: reader.is_reading,
        )  # fmt: skip

    asyncio.run(run())


def get_alive_file(settings: Settings) -> Path:
    """Return the file that the homeserver's tap touches while it runs and can write. Its folder exists."""
    return _log_folder(settings) / "tap.alive"


def _log_folder(settings: Settings) -> Path:
    folder = settings.lake_folder / "logs" / "replication"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _stop_event() -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def create_recorder(folder: Path) -> RecordCommand:
    """Return a function that logs clients' commands to ``received.jsonl`` in ``folder``, at most ``RECORDED_BYTES``."""
    handler = RotatingFileHandler(
        folder / "received.jsonl", maxBytes=RECORDED_BYTES // _LOG_FILES, backupCount=_LOG_FILES - 1, encoding="utf-8"
    )

    def write(subscriber: str, command: Command) -> None:
        line = json.dumps({"at": datetime.now(UTC).isoformat(), "from": subscriber} | redact_command(command))
        handler.emit(logging.makeLogRecord({"msg": line}))

    return write
