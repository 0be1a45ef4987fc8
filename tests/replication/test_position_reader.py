"""The server follows positions that appear, lag behind and go back."""

import asyncio

import pytest

from synapse_lakehouse.replication.protocol.dialect import Dialect
from tests.replication.conversation import Conversation, run_conversations
from tests.replication.database import Database


@pytest.fixture
def standby(homeserver: Database) -> Database:
    """Return the homeserver's database, which readers see as a standby in recovery."""
    homeserver.enter_recovery()
    return homeserver


def test_a_standby_skips_no_row_of_caches(standby: Database) -> None:
    standby.add_invalidation(2, "ep1")
    # WAL records a sequence 32 values ahead.
    standby.set_last_allocated("caches", 34)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE caches NOW")
        await conversation.read_until(lambda line: line == "POSITION caches 2")
        for token in (3, 4):
            await asyncio.sleep(0.2)
            standby.add_invalidation(token, "ep1")
            assert await conversation.receive() == f'RDATA caches {token} ["get_user_by_id",["@a"],1]'

    run_conversations(standby, Dialect.TOKENS, follow)


def test_a_standby_skips_no_row_of_a_new_writer(standby: Database) -> None:
    for token in (2, 3):
        standby.add_event(token, "ep1")
    standby.set_position("events", "ep1", 3)
    standby.set_last_allocated("events", 35)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE events NOW")
        assert (await conversation.read_until(lambda line: line.startswith("POSITION")))[-1] == "POSITION events 3"
        standby.add_event(4, "ep2")
        for writer in ("ep1", "ep2"):
            standby.set_position("events", writer, 4)
        assert (await conversation.receive() or "").startswith("RDATA events 4")

    run_conversations(standby, Dialect.TOKENS, follow)


def test_a_restore_ends_subscriptions_with_an_error(homeserver: Database) -> None:
    homeserver.complete_events(20)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE events 20")
        await conversation.read_until(lambda line: line == "POSITION events 20")
        homeserver.complete_events(10)
        assert (await conversation.read_all())[-1].startswith("ERROR ")

    async def resubscribe(conversation: Conversation) -> None:
        conversation.send("REPLICATE events 20")
        await conversation.read_until(lambda line: line == "POSITION events 10")
        homeserver.add_event(11, "ep1")
        homeserver.complete_events(11)
        assert (await conversation.receive() or "").startswith("RDATA events 11")

    run_conversations(homeserver, Dialect.TOKENS, follow, resubscribe)


def test_a_restore_below_one_writer_is_reported(homeserver: Database) -> None:
    """The restored position of ``ep1`` is still above that of ``ep2``."""
    homeserver.set_last_allocated("events", 60)
    homeserver.set_position("events", "ep1", 53)
    homeserver.set_position("events", "ep2", 40)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE")
        await conversation.read_until(lambda line: line == "POSITION events ep1 53 53")
        homeserver.set_last_allocated("events", 45)
        homeserver.set_position("events", "ep1", 45)
        assert (await conversation.read_all())[-1].startswith("ERROR ")

    run_conversations(homeserver, Dialect.INSTANCES, follow)


def test_no_history_is_sent_without_a_writer_s_position(homeserver: Database) -> None:
    for token in (2, 3):
        homeserver.add_event(token, "ep1")
    homeserver.set_last_allocated("events", 3)
    homeserver.set_position("events", "ep1", 3)

    async def follow(conversation: Conversation) -> None:
        for since in ("99", "NOW"):
            conversation.send(f"REPLICATE events {since}")
            await conversation.read_until(lambda line: line == "POSITION events 3")
        homeserver.add_event(4, "ep2")
        homeserver.complete_events(4)
        assert (await conversation.receive() or "").startswith("RDATA events 4")

    run_conversations(homeserver, Dialect.TOKENS, follow)


def test_no_history_of_a_new_writer_is_sent(homeserver: Database) -> None:
    """This holds for a configured writer, for a negative stream, and for a writer that is unknown before its row."""

    def add_backfilled_event(token: int) -> None:
        homeserver.add_event(-token, "ep1")
        homeserver.set_last_allocated("backfill", token)

    def add_rule(token: int) -> None:
        homeserver.execute("insert into push_rules_stream values (%s, 1, '@a', 'x', 'ADD', null, null, 'sw1')", token)
        homeserver.set_last_allocated("push_rules", token)

    for token, writer in ((2, "ep2"), (3, "ep1")):
        homeserver.add_event(token, writer)
        add_backfilled_event(token)
        add_rule(token)
    homeserver.set_last_allocated("events", 4)
    homeserver.set_position("events", "ep1", 3)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE")
        await conversation.read_until(lambda line: line.startswith("POSITION un_partial_stated_room"))
        # The ID was allocated before the subscription.
        homeserver.add_event(4, "ep2")
        homeserver.add_event(5, "ep2")
        homeserver.complete_events(5)
        add_backfilled_event(4)
        homeserver.set_position("backfill", "ep1", -4)
        add_rule(4)
        homeserver.set_position("push_rules", "sw1", 4)
        rows: list[str] = []
        while len(rows) < 4:
            received = await conversation.read_until(lambda line: line.startswith("RDATA"))
            rows.append(" ".join(received[-1].split()[1:4]))
        assert sorted(rows) == ["backfill ep1 4", "events ep2 4", "events ep2 5", "push_rules sw1 4"]

    run_conversations(homeserver, Dialect.INSTANCES, follow)


def test_a_restore_resets_unbounded_streams(homeserver: Database) -> None:
    def add_rule(token: int) -> None:
        homeserver.execute("insert into push_rules_stream values (%s, 1, '@a', 'x', 'ADD', null, null, 'sw1')", token)

    for token in (2, 9):
        add_rule(token)
    homeserver.set_last_allocated("push_rules", 9)
    reader = homeserver.open_reader()
    assert reader.read_positions().unbounded["push_rules"] == 9
    homeserver.execute("delete from push_rules_stream where stream_id = 9")
    homeserver.set_last_allocated("push_rules", 4)
    assert reader.read_positions().unbounded["push_rules"] == 2
