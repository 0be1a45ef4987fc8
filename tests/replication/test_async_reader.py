"""The reader reads missed rows from a primary or a standby."""

import asyncio
from dataclasses import replace

import pytest

from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.replication.protocol.commands import Position
from synapse_lakehouse.replication.protocol.stream_tokens import Gap, MissedRange, Progress, Update
from synapse_lakehouse.replication.server.async_reader import NO_ROW, STANDBY_BEHIND, AsyncReader
from synapse_lakehouse.replication.server.stream_positions import StreamPositions
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from tests.replication.database import CATALOGUE, Database

EP1 = ("events", "ep1")


class Standby(DatabaseReader):
    """Replays the announced token when its positions are read for the ``replays_at``-th time."""

    def __init__(self, primary: Database, replays_at: int) -> None:
        super().__init__(primary.settings, CATALOGUE)
        self._primary = primary
        self._replays_at = replays_at
        self.position_reads = 0
        self.reads_before: list[int] = []

    def read_positions(self) -> StreamPositions:
        self.position_reads += 1
        if self.position_reads == self._replays_at:
            self._primary.add_event(5, "ep1")
            self._primary.set_position("events", "ep1", 5)
        return replace(super().read_positions(), is_standby=True)


def read_missed(standby: Standby, *uptos: int, wait_seconds: float = 0.5) -> list[Update | Gap]:
    async def scenario() -> list[Update | Gap]:
        progress, reader = Progress({EP1: 2}), AsyncReader(standby, wait_seconds)
        items: list[Update | Gap] = []
        for upto in uptos:
            missed = MissedRange(*EP1, progress.positions[EP1], upto)
            standby.reads_before.append(standby.position_reads)
            items += [item async for item in reader.read_missed(missed, progress)]
        await reader.close()
        return items

    return asyncio.run(scenario())


@pytest.fixture
def primary(homeserver: Database) -> Database:
    """Return a database in which both writers have position 2."""
    homeserver.set_last_allocated("events", 6)
    for writer in ("ep1", "ep2"):
        homeserver.set_position("events", writer, 2)
    return homeserver


def test_a_standby_is_waited_for(primary: Database) -> None:
    standby = Standby(primary, replays_at=3)
    update, gap = read_missed(standby, 5, wait_seconds=30.0)
    assert isinstance(update, Update)
    assert (update.token, gap) == (5, Gap(*EP1, 2, 5, 1, NO_ROW))
    assert standby.position_reads == 3


def test_a_standby_that_stays_behind_is_waited_for_once(primary: Database) -> None:
    standby = Standby(primary, replays_at=1000)
    assert read_missed(standby, 5, 6) == [Gap(*EP1, 2, 5, 0, STANDBY_BEHIND), Gap(*EP1, 5, 6, 0, STANDBY_BEHIND)]
    assert standby.position_reads == standby.reads_before[1] + 1


def test_is_reading_is_false_during_an_outage(primary: Database) -> None:
    failures = [False, True, False]

    class FailingReader(DatabaseReader):
        def read_positions(self) -> StreamPositions:
            if failures.pop(0):
                raise ReadError(ValueError("away"))
            return super().read_positions()

    async def scenario() -> None:
        reader = AsyncReader(FailingReader(primary.settings, CATALOGUE))
        await reader.read_positions()
        assert reader.is_reading
        second_read = asyncio.create_task(reader.read_positions())
        while reader.is_reading:
            await asyncio.sleep(0.01)
        assert not second_read.done()
        await second_read
        assert reader.is_reading
        await reader.close()

    asyncio.run(scenario())


def test_a_primary_is_not_waited_for(primary: Database) -> None:
    database_reader = primary.open_reader()

    async def scenario() -> list[Update | Gap]:
        reader = AsyncReader(database_reader, standby_wait_seconds=1000.0)
        items = [item async for item in reader.read_missed(MissedRange(*EP1, 2, 5), Progress({EP1: 2}))]
        await reader.close()
        return items

    assert asyncio.run(scenario()) == [Gap(*EP1, 2, 5, 0, NO_ROW)]


@pytest.mark.parametrize(("last_allocated", "expected"), [(20, False), (19, True)])
def test_lower_tokens_of_caches_do_not_prove_a_restore(
    homeserver: Database, last_allocated: int, *, expected: bool
) -> None:
    homeserver.set_last_allocated("caches", last_allocated)
    database_reader = homeserver.open_reader()

    async def scenario() -> bool:
        reader = AsyncReader(database_reader)
        is_restored = await reader.has_gone_back(Position("caches", "ep1", 18, 18), Progress({("caches", "ep1"): 20}))
        await reader.close()
        return is_restored

    assert asyncio.run(scenario()) is expected
