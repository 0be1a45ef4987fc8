"""Where the server begins and up to where it sends, as positions come, lag behind and go back."""

import asyncio

import pytest

from synapse_lakehouse.replication.protocol.dialect import Dialect
from tests.replication.conversation import Conversation, talk
from tests.replication.database import Database


@pytest.fixture
def standby(homeserver: Database) -> Database:
    """The homeserver, as if it were in recovery."""
    homeserver.enter_recovery()
    return homeserver


def test_a_standby_skips_no_row_of_caches(standby: Database) -> None:
    standby.invalidation(2, "ep1")
    # Its log has a sequence 32 ahead.
    standby.handed_out("caches", 34)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE caches NOW")
        await conversation.until(lambda line: line == "POSITION caches 2")
        for token in (3, 4):
            await asyncio.sleep(0.2)
            standby.invalidation(token, "ep1")
            assert await conversation.hear() == f'RDATA caches {token} ["get_user_by_id",["@a"],1]'

    talk(standby, Dialect.TOKENS, follow)


def test_a_standby_skips_no_row_of_a_new_writer(standby: Database) -> None:
    for token in (2, 3):
        standby.event(token, "ep1")
    standby.position("events", "ep1", 3)
    standby.handed_out("events", 35)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE events NOW")
        assert (await conversation.until(lambda line: line.startswith("POSITION")))[-1] == "POSITION events 3"
        standby.event(4, "ep2")
        for writer in ("ep1", "ep2"):
            standby.position("events", writer, 4)
        assert (await conversation.hear() or "").startswith("RDATA events 4")

    talk(standby, Dialect.TOKENS, follow)


def test_subscribers_learn_that_the_database_went_back(homeserver: Database) -> None:
    homeserver.done(20)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE events 20")
        await conversation.until(lambda line: line == "POSITION events 20")
        homeserver.done(10)
        assert (await conversation.to_the_end())[-1].startswith("ERROR ")

    async def begin_again(conversation: Conversation) -> None:
        conversation.say("REPLICATE events 20")
        await conversation.until(lambda line: line == "POSITION events 10")
        homeserver.event(11, "ep1")
        homeserver.done(11)
        assert (await conversation.hear() or "").startswith("RDATA events 11")

    talk(homeserver, Dialect.TOKENS, follow, begin_again)


def test_a_restore_below_one_writer_is_reported(homeserver: Database) -> None:
    """To where another writer had not come yet."""
    homeserver.handed_out("events", 60)
    homeserver.position("events", "ep1", 53)
    homeserver.position("events", "ep2", 40)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE")
        await conversation.until(lambda line: line == "POSITION events ep1 53 53")
        homeserver.handed_out("events", 45)
        homeserver.position("events", "ep1", 45)
        assert (await conversation.to_the_end())[-1].startswith("ERROR ")

    talk(homeserver, Dialect.INSTANCES, follow)


def test_no_history_is_sent_without_a_writer_s_position(homeserver: Database) -> None:
    for token in (2, 3):
        homeserver.event(token, "ep1")
    homeserver.handed_out("events", 3)
    homeserver.position("events", "ep1", 3)

    async def follow(conversation: Conversation) -> None:
        for since in ("99", "NOW"):
            conversation.say(f"REPLICATE events {since}")
            await conversation.until(lambda line: line == "POSITION events 3")
        homeserver.event(4, "ep2")
        homeserver.done(4)
        assert (await conversation.hear() or "").startswith("RDATA events 4")

    talk(homeserver, Dialect.TOKENS, follow)


def test_no_history_of_a_new_writer_is_sent(homeserver: Database) -> None:
    """One that is configured, also of a stream that counts down, and one that is first heard of when it writes."""

    def backfill(token: int) -> None:
        homeserver.event(-token, "ep1")
        homeserver.handed_out("backfill", token)

    def rule(token: int) -> None:
        homeserver.do("insert into push_rules_stream values (%s, 1, '@a', 'x', 'ADD', null, null, 'sw1')", token)
        homeserver.handed_out("push_rules", token)

    for token, writer in ((2, "ep2"), (3, "ep1")):
        homeserver.event(token, writer)
        backfill(token)
        rule(token)
    homeserver.handed_out("events", 4)
    homeserver.position("events", "ep1", 3)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE")
        await conversation.until(lambda line: line.startswith("POSITION un_partial_stated_room"))
        # Its id was handed out before anybody subscribed.
        homeserver.event(4, "ep2")
        homeserver.event(5, "ep2")
        homeserver.done(5)
        backfill(4)
        homeserver.position("backfill", "ep1", -4)
        rule(4)
        homeserver.position("push_rules", "sw1", 4)
        rows: list[str] = []
        while len(rows) < 4:
            heard = await conversation.until(lambda line: line.startswith("RDATA"))
            rows.append(" ".join(heard[-1].split()[1:4]))
        assert sorted(rows) == ["backfill ep1 4", "events ep2 4", "events ep2 5", "push_rules sw1 4"]

    talk(homeserver, Dialect.INSTANCES, follow)


def test_a_restore_resets_unbounded_streams(homeserver: Database) -> None:
    def rule(token: int) -> None:
        homeserver.do("insert into push_rules_stream values (%s, 1, '@a', 'x', 'ADD', null, null, 'sw1')", token)

    for token in (2, 9):
        rule(token)
    homeserver.handed_out("push_rules", 9)
    feed = homeserver.feed()
    assert feed.read_positions().unbounded["push_rules"] == 9
    homeserver.do("delete from push_rules_stream where stream_id = 9")
    homeserver.handed_out("push_rules", 4)
    assert feed.read_positions().unbounded["push_rules"] == 2
