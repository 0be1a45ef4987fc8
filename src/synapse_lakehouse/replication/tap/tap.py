"""Lands what is heard, in small commits, as fast as it comes and no faster than it can be written."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Final

from synapse_lakehouse.printable_text import get_printable_logger
from synapse_lakehouse.replication.protocol.stream_tokens import Progress
from synapse_lakehouse.replication.tap.follower import Item
from synapse_lakehouse.replication.tap.iceberg_sink import Batch, Landing

log = get_printable_logger(__name__)

_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Pace:
    """A commit is made of ``rows``, or of what came in ``seconds``; ``most`` rows wait in memory while one is made.

    Where nothing is heard although the tap is connected, it shows every ``quiet`` seconds that it listens; never where
    all it hears is that it is refused.
    """

    rows: int = 50_000
    seconds: float = 6.0
    most: int = 100_000
    quiet: float = 120.0


DEFAULT: Final = Pace()


async def land(
    items: AsyncGenerator[Item, None],
    progress: Progress,
    landing: Landing,
    new_batch: Callable[[], Batch],
    stop: asyncio.Event,
    pace: Pace = DEFAULT,
    beat: Callable[[], object] = lambda: None,
    reads: Callable[[], bool] = lambda: True,
) -> None:
    """Land ``items``, which move ``progress``, until ``stop`` is set; what was heard by then is landed too.

    :raises SinkWriteError: when that cannot be written.
    :param beat: called again and again, but not while a batch is being written.
    :param reads: whether what was missed can be read; a tap that waits for that does not show that it listens.
    """
    batch, room, written, told = new_batch(), asyncio.Event(), monotonic(), dict(progress.positions)

    async def hear() -> None:
        async with aclosing(items):
            async for item in items:
                batch.add(item)
                while len(batch) >= pace.most:
                    room.clear()
                    await room.wait()

    async def write() -> None:
        nonlocal batch, written, told
        full, batch = batch, new_batch()
        if progress.is_connected or progress.positions != told:
            full.end(progress.positions)
            told = dict(progress.positions)
        room.set()
        await asyncio.to_thread(landing.append, full)
        written = monotonic()

    hearing, stopping = asyncio.create_task(hear()), asyncio.create_task(stop.wait())
    # What cannot be written is tried again and again, but not by a tap that is to end.
    stopping.add_done_callback(lambda _: landing.end_soon())
    try:
        while not stopping.done() and not hearing.done():
            await asyncio.wait([hearing, stopping], timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            beat()
            is_due = batch.since is not None and monotonic() - batch.since >= pace.seconds
            is_quiet = progress.is_connected and reads() and monotonic() - written >= pace.quiet
            if is_due or is_quiet or len(batch) >= pace.rows:
                await write()
    finally:
        stopping.cancel()
        hearing.cancel()
        await asyncio.wait([hearing])
    if len(batch):
        await write()
    if not hearing.cancelled():
        hearing.result()
