"""What was missed, read from a database that may be behind."""

import asyncio
from dataclasses import replace

import pytest

from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.replication.protocol.commands import Position
from synapse_lakehouse.replication.protocol.stream_tokens import Gap, Missed, Progress, Update
from synapse_lakehouse.replication.server.async_reader import NO_ROW, NOT_THAT_FAR, Reader
from synapse_lakehouse.replication.server.stream_reader import Feed, Heads
from tests.replication.database import KNOWN, Database

EP1 = ("events", "ep1")


class Standby(Feed):
    """Replays the announced token when it is looked at for the ``replays_at``-th time."""

    def __init__(self, primary: Database, replays_at: int) -> None:
        super().__init__(primary.settings, KNOWN)
        self._primary = primary
        self._replays_at = replays_at
        self.looks = 0
        self.looks_before: list[int] = []

    def heads(self) -> Heads:
        self.looks += 1
        if self.looks == self._replays_at:
            self._primary.event(5, "ep1")
            self._primary.position("events", "ep1", 5)
        return replace(super().heads(), is_standby=True)


def fill(standby: Standby, *uptos: int) -> list[Update | Gap]:
    async def scenario() -> list[Update | Gap]:
        progress, reader = Progress({EP1: 2}), Reader(standby, lag_seconds=0.5)
        found: list[Update | Gap] = []
        for upto in uptos:
            missed = Missed(*EP1, progress.positions[EP1], upto)
            standby.looks_before.append(standby.looks)
            found += [item async for item in reader.fill(missed, progress)]
        await reader.close()
        return found

    return asyncio.run(scenario())


@pytest.fixture
def primary(homeserver: Database) -> Database:
    """Both writers stand at 2."""
    homeserver.handed_out("events", 6)
    for writer in ("ep1", "ep2"):
        homeserver.position("events", writer, 2)
    return homeserver


def test_a_standby_is_waited_for(primary: Database) -> None:
    standby = Standby(primary, replays_at=3)
    update, gap = fill(standby, 5)
    assert isinstance(update, Update)
    assert (update.token, gap) == (5, Gap(*EP1, 2, 5, 1, NO_ROW))
    assert standby.looks == 3


def test_a_standby_that_stays_behind_is_waited_for_once(primary: Database) -> None:
    standby = Standby(primary, replays_at=1000)
    assert fill(standby, 5, 6) == [Gap(*EP1, 2, 5, 0, NOT_THAT_FAR), Gap(*EP1, 5, 6, 0, NOT_THAT_FAR)]
    assert standby.looks == standby.looks_before[1] + 1


def test_a_reader_says_that_it_cannot_read(primary: Database) -> None:
    fails = [False, True, False]

    class Away(Feed):
        def heads(self) -> Heads:
            if fails.pop(0):
                raise ReadError(ValueError("away"))
            return super().heads()

    async def scenario() -> None:
        reader = Reader(Away(primary.settings, KNOWN))
        await reader.heads()
        assert reader.is_reading
        again = asyncio.create_task(reader.heads())
        while reader.is_reading:
            await asyncio.sleep(0.01)
        assert not again.done()
        await again
        assert reader.is_reading
        await reader.close()

    asyncio.run(scenario())


def test_a_primary_is_not_waited_for(primary: Database) -> None:
    feed = primary.feed()

    async def scenario() -> list[Update | Gap]:
        reader = Reader(feed, lag_seconds=1000.0)
        found = [item async for item in reader.fill(Missed(*EP1, 2, 5), Progress({EP1: 2}))]
        await reader.close()
        return found

    assert asyncio.run(scenario()) == [Gap(*EP1, 2, 5, 0, NO_ROW)]


@pytest.mark.parametrize(("handed_out", "expected"), [(20, False), (19, True)])
def test_caches_that_go_back_are_a_database_that_did_only_where_that_says_so(
    homeserver: Database, handed_out: int, *, expected: bool
) -> None:
    homeserver.handed_out("caches", handed_out)
    feed = homeserver.feed()

    async def scenario() -> bool:
        reader = Reader(feed)
        went_back = await reader.went_back(Position("caches", "ep1", 18, 18), Progress({("caches", "ep1"): 20}))
        await reader.close()
        return went_back

    assert asyncio.run(scenario()) is expected
