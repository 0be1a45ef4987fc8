"""A replication client that consists of one Synapse release's own classes. It runs in that release's Python.

Usage: ``python synapse_client.py PORT SERVER_NAME``. A release that requests a token begins at the first one.

Stand-ins replace the parts of a worker that are not under test: the homeserver object, and the store, which only
contains positions. Each printed line is a JSON object. The first line lists the release's streams. Each later line is
the rows of a token as the release parsed them, a position without rows, or an error that the release logged.
"""

import json
import logging
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from synapse.replication.tcp import client, protocol
from synapse.replication.tcp.streams import STREAMS_MAP
from twisted.internet import reactor
from twisted.internet.protocol import ClientFactory

try:
    from synapse.util.clock import Clock
except ImportError:
    from synapse.util import Clock

HAS_INSTANCES = not hasattr(client, "ReplicationClientHandler")
"""Whether RDATA and POSITION name the writer: since release 1.13."""


def main(port: int, server_name: str) -> None:
    """Follow the server on ``port`` until this process is ended."""
    logging.getLogger().addHandler(ErrorPrinter(logging.ERROR))
    print_json(streams=sorted(STREAMS_MAP))
    try:
        clock = Clock(reactor)
    except TypeError:
        clock = Clock(reactor, server_name)
    follow = follow_instances if HAS_INSTANCES else follow_tokens
    follow(port, server_name, clock, Store())
    reactor.run()


def follow_tokens(port: int, server_name: str, clock: Any, store: "Store") -> None:
    """Connect with the classes of releases before 1.13."""
    config = SimpleNamespace(
        server_name=server_name, worker_name="client", worker_replication_host="127.0.0.1", worker_replication_port=port
    )
    hs = SimpleNamespace(config=config, get_clock=lambda: clock, get_reactor=lambda: reactor)
    client.ReplicationClientHandler(store).start_replication(hs)


def follow_instances(port: int, server_name: str, clock: Any, store: "Store") -> None:
    """Connect with the classes of later releases."""
    from synapse.replication.tcp.handler import ReplicationCommandHandler

    hs = MagicMock()
    hs.hostname = hs.config.server.server_name = hs.config.server_name = server_name
    hs.get_clock.return_value = clock
    hs.get_reactor.return_value = reactor
    hs.get_instance_name.return_value = hs.get_instance_id.return_value = "client"
    hs.get_replication_data_handler.return_value = store
    hs.get_presence_handler.return_value.get_currently_syncing_users_for_replication.return_value = []
    hs.config.redis.redis_enabled = False
    hs.run_as_background_process = in_background(server_name)
    handler = ReplicationCommandHandler(hs)
    for stream in handler.get_streams().values():
        stream.current_token = store.position_of(stream.NAME)
        stream.get_updates_since = refuse_to_fetch(stream.NAME)
        stream.can_discard_position = lambda instance, before, now: False
    if hasattr(client, "DirectTcpReplicationClientFactory"):
        factory = client.DirectTcpReplicationClientFactory(hs, "client", handler)
    else:
        factory = ClientFactory()
        # The newest releases connect to Redis only, but still have the protocol.
        factory.buildProtocol = lambda address: protocol.ClientReplicationStreamProtocol(
            hs, "client", server_name, clock, handler
        )
    reactor.connectTCP("127.0.0.1", port, factory)


def in_background(server_name: str) -> Callable[..., Any]:
    """Return ``run_as_background_process``, a method of the homeserver object in recent releases."""
    from synapse.metrics.background_process_metrics import run_as_background_process

    def run(name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return run_as_background_process(name, server_name, function, *arguments, **options)

    return run


def refuse_to_fetch(stream: str) -> Callable[..., Any]:
    """Return a function that fails, because this client has no database from which it could read missed rows."""

    async def fetch(instance: str, after: int, upto: int) -> None:
        raise RuntimeError(f"{stream} {instance}: rows after {after} and up to {upto} were not sent")

    return fetch


class Store:
    """Records positions and prints received rows."""

    def __init__(self) -> None:
        self.positions: dict[tuple[str, str | None], int] = {}

    def stream_positions(self) -> dict[str, int]:
        """Return start positions; releases before 1.13 call it."""
        return {stream: self.positions.get((stream, None), 0) for stream in STREAMS_MAP}

    def position_of(self, stream: str) -> Callable[..., int]:
        """Return a function of a stream's position by instance, initially its beginning; later releases call it."""
        begin = 0 if stream in ("typing", "federation", "presence_federation") else 1
        return lambda instance="client": self.positions.get((stream, instance), begin)

    def process_replication_rows(self, stream: str, token: int, rows: list[Any]) -> None:
        """Record rows, or a position without rows; releases before 1.13 call it."""
        self.record(stream, None, token, rows)

    async def on_rdata(self, stream: str, instance: str, token: int, rows: list[Any]) -> None:
        """Record rows; later releases call it."""
        self.record(stream, instance, token, rows)

    async def on_position(self, stream: str, instance: str, token: int) -> None:
        """Record a position; later releases call it."""
        self.record(stream, instance, token, [])

    def record(self, stream: str, instance: str | None, token: int, rows: list[Any]) -> None:
        self.positions[stream, instance] = token
        print_json(stream=stream, instance=instance, token=token, rows=[to_list(row) for row in rows])


def to_list(row: Any) -> Any:
    """Return a parsed row as a list: the name of its class, and its fields."""
    if hasattr(row, "_fields"):
        names = row._fields
    elif hasattr(row, "__attrs_attrs__"):
        names = [field.name for field in row.__attrs_attrs__]
    else:
        return sorted(row) if isinstance(row, frozenset) else row
    return [type(row).__name__] + [to_list(getattr(row, name)) for name in names]


class ErrorPrinter(logging.Handler):
    """Prints what the release logs as errors, such as a row that it cannot parse."""

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info and record.exc_info[1]
        print_json(
            error=record.getMessage(), cause=repr(cause), root=repr(cause and (cause.__cause__ or cause.__context__))
        )


def print_json(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
