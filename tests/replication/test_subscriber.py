"""Requests of clients of every release and tool; no client blocks the others."""

import asyncio

import psycopg
import pytest

from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.stream_tokens import MEMORY_ONLY_STREAMS
from synapse_lakehouse.replication.server.server import ServerLimits
from tests.replication.conversation import Conversation, connected, run_conversations, serving
from tests.replication.database import CATALOGUE, Database


def test_retired_streams_have_a_position_and_no_rows(homeserver: Database) -> None:
    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE typing 5", "REPLICATE groups NOW", "REPLICATE federation 0", "REPLICATE events 1")
        lines = await conversation.read_until(lambda line: line.startswith("POSITION events"))
        assert lines[1:] == [
            "POSITION typing 5", "POSITION groups 0", "POSITION federation 0", "POSITION events 1",
        ]  # fmt: skip
        homeserver.add_event(2, "ep1")
        homeserver.complete_events(2)
        assert (await conversation.receive() or "").startswith("RDATA events 2 ")

    run_conversations(homeserver, Dialect.TOKENS, follow)


def test_replicate_returns_the_position_of_each_stream(homeserver: Database) -> None:
    """Also for streams without a row."""

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE")
        lines = await conversation.read_until(lambda line: line.startswith("POSITION un_partial_stated_room "))
        words = [line.split() for line in lines[1:]]
        assert {stream for _, stream, *_ in words} == {
            stream.name for stream in CATALOGUE.streams
        } | MEMORY_ONLY_STREAMS
        assert all(len(line) == 5 and line[3] == line[4] for line in words)

    run_conversations(homeserver, Dialect.INSTANCES, follow)


@pytest.mark.parametrize("dialect", [Dialect.TOKENS, Dialect.INSTANCES])
def test_a_half_closed_client_receives_its_rows(homeserver: Database, dialect: Dialect) -> None:
    """As ``printf`` piped into netcat."""
    rows = 5_000
    homeserver.execute(
        "insert into push_rules_stream (stream_id, event_stream_ordering, user_id, rule_id, op)"
        " select n, 1, repeat('@long', 300), 'x', 'ADD' from generate_series(2, %s) n", rows + 1,
    )  # fmt: skip
    homeserver.set_last_allocated("push_rules", rows + 1)
    homeserver.set_position("push_rules", "sw1", rows + 1)

    async def ask(conversation: Conversation) -> None:
        conversation.send("NAME me", "REPLICATE push_rules 1" if dialect is Dialect.TOKENS else "REPLICATE")
        conversation.writer.write_eof()
        # Longer than a closing connection is waited for.
        await asyncio.sleep(1.5)
        lines = await conversation.read_all()
        if dialect is Dialect.TOKENS:
            tokens = [int(line.split()[2]) for line in lines if line.startswith("RDATA")]
            assert tokens == list(range(2, rows + 2))
        else:
            assert f"POSITION push_rules sw1 {rows + 1} {rows + 1}" in lines
        assert not lines[-1].startswith("ERROR")

    run_conversations(homeserver, dialect, ask)


def test_idle_connections_give_way(homeserver: Database) -> None:
    limits = ServerLimits(subscribers=4, per_address=3)

    async def come() -> None:
        async with (
            serving(homeserver.open_reader(), Dialect.TOKENS, limits=limits) as port,
            connected(port) as first, connected(port) as idle, connected(port) as third,
        ):  # fmt: skip
            for client in (first, third):
                client.send("REPLICATE events NOW")
                await client.read_until(lambda line: line == "POSITION events 1")
            async with connected(port) as fourth:
                fourth.send("REPLICATE events NOW")
                await fourth.read_until(lambda line: line == "POSITION events 1")
                assert (await idle.read_all())[-1].startswith("ERROR ")
                async with connected(port) as refused:
                    lines = await refused.read_all()
                    assert [line.split()[0] for line in lines] == ["SERVER", "ERROR"]
                async with connected(port, "127.0.0.2") as other:
                    other.send("REPLICATE events NOW")
                    await other.read_until(lambda line: line == "POSITION events 1")
                homeserver.add_event(2, "ep1")
                homeserver.complete_events(2)
                for client in (first, third, fourth):
                    await client.read_until(lambda line: line.startswith("RDATA events 2 "))

    asyncio.run(come())


def test_the_first_row_of_a_new_writer_is_sent(homeserver: Database) -> None:
    """``ep3`` was unknown before, so its open transaction delayed no subscriber."""
    homeserver.complete_events(4)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE")
        await conversation.read_until(lambda line: line.startswith("POSITION un_partial_stated_room "))
        with psycopg.connect(str(homeserver.settings.synapse_dsn)) as writing:
            writing.execute(
                "insert into events (event_id, room_id, type, sender, stream_ordering, topological_ordering, depth,"
                " outlier, processed, instance_name) values ('$e5', '!r', 'm', '@a', 5, 1, 1, false, true, 'ep3')"
            )
            homeserver.complete_events(7)
            await conversation.read_until(lambda line: line == "POSITION events ep2 4 7")
        homeserver.set_position("events", "ep3", 5)
        assert (await conversation.read_until(lambda line: line.startswith("RDATA")))[-1].startswith(
            "RDATA events ep3 5 "
        )

    run_conversations(homeserver, Dialect.INSTANCES, follow)


@pytest.mark.parametrize("dialect", [Dialect.TOKENS, Dialect.INSTANCES])
def test_remote_server_up_is_passed_on(homeserver: Database, dialect: Dialect) -> None:
    async def pass_on() -> None:
        async with (
            serving(homeserver.open_reader(), dialect) as port,
            connected(port) as sender, connected(port) as first, connected(port) as other,
        ):  # fmt: skip
            for conversation in (first, other):
                await conversation.read_until(lambda line: line.startswith("SERVER"))
            sender.send("REMOTE_SERVER_UP example.com", "ERROR bye")
            assert [line for line in await sender.read_all() if "UP" in line] == []
            for conversation in (first, other):
                conversation.send("ERROR bye")
                lines = await conversation.read_all()
                assert lines == ([] if dialect is Dialect.TOKENS else ["REMOTE_SERVER_UP example.com"])

    asyncio.run(pass_on())
