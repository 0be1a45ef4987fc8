"""Write received items to Iceberg in small commits. If commits are slow, receiving waits for them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Final

from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.stream_tokens import Progress
from synapse_lakehouse.replication.tap.follower import Item
from synapse_lakehouse.replication.tap.iceberg_sink import Batch, IcebergSink

log = get_printable_logger(__name__)

_TICK_SECONDS: Final = 0.2


@dataclass(frozen=True)
class CommitPolicy:
    """The tap commits every ``rows`` rows, and at least every ``seconds``. At most ``max_pending`` rows wait in memory.

    A connected tap that receives nothing commits its positions every ``quiet`` seconds, as a sign of life.
    """

    rows: int = 50_000
    seconds: float = 6.0
    max_pending: int = 100_000
    quiet: float = 120.0


DEFAULT_POLICY: Final = CommitPolicy()


class _Committer:
    """Collects items in a batch, and commits the batch with the positions of ``progress``."""

    def __init__(
        self, sink: IcebergSink, progress: Progress, new_batch: Callable[[], Batch], policy: CommitPolicy
    ) -> None:
        self._sink = sink
        self._progress = progress
        self._new_batch = new_batch
        self._policy = policy
        self._has_room = asyncio.Event()
        self._committed_at = monotonic()
        self._committed_positions = dict(progress.positions)
        self.batch = new_batch()

    async def receive(self, items: AsyncGenerator[Item, None]) -> None:
        """Add ``items`` to the batch; wait while it is full."""
        async with aclosing(items):
            async for item in items:
                self.batch.add(item)
                while len(self.batch) >= self._policy.max_pending:
                    self._has_room.clear()
                    await self._has_room.wait()

    def is_due(self, *, can_read: bool) -> bool:
        """Return whether to commit now. A tap that cannot read missed rows gives no sign of life."""
        now, batch, policy = monotonic(), self.batch, self._policy
        is_old = batch.started_at is not None and now - batch.started_at >= policy.seconds
        is_quiet = self._progress.is_connected and can_read and now - self._committed_at >= policy.quiet
        return is_old or is_quiet or len(batch) >= policy.rows

    async def commit(self) -> None:
        """Commit the batch while a new batch is filled."""
        full_batch, self.batch = self.batch, self._new_batch()
        if self._progress.is_connected or self._progress.positions != self._committed_positions:
            full_batch.add_positions(self._progress.positions)
            self._committed_positions = dict(self._progress.positions)
        self._has_room.set()
        await asyncio.to_thread(self._sink.append, full_batch)
        self._committed_at = monotonic()


async def write_items(
    items: AsyncGenerator[Item, None],
    progress: Progress,
    sink: IcebergSink,
    new_batch: Callable[[], Batch],
    stop: asyncio.Event,
    policy: CommitPolicy = DEFAULT_POLICY,
    on_tick: Callable[[], object] = lambda: None,
    can_read: Callable[[], bool] = lambda: True,
) -> None:
    """Write ``items`` until ``stop`` is set, then commit the rest. Reading ``items`` moves ``progress``.

    :param on_tick: called several times per second, except during a commit.
    :param can_read: whether missed rows can be read from the database.
    :raises SinkWriteError: if the last commit fails.
    """
    committer = _Committer(sink, progress, new_batch, policy)
    receiving, stopping = asyncio.create_task(committer.receive(items)), asyncio.create_task(stop.wait())
    # A failed commit is retried without a limit, until the tap is stopped.
    stopping.add_done_callback(lambda _: sink.limit_retries())
    try:
        while not stopping.done() and not receiving.done():
            await asyncio.wait([receiving, stopping], timeout=_TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            on_tick()
            if committer.is_due(can_read=can_read()):
                await committer.commit()
    finally:
        stopping.cancel()
        receiving.cancel()
        await asyncio.wait([receiving])
    if len(committer.batch):
        await committer.commit()
    if not receiving.cancelled():
        receiving.result()
