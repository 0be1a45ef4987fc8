"""The server answers clients of every release and tool, and no client blocks the others."""

import asyncio

import psycopg
import pytest

from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.stream_tokens import MEMORY_ONLY_STREAMS
from synapse_lakehouse.replication.server.server import ServerLimits
from tests.replication.conversation import Conversation, connect, run_conversations, run_server
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
    """Streams without rows have a position too."""

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
    """``printf`` piped into netcat closes its side of the connection in this way."""
    rows = 5_000
    homeserver.execute(
        "insert into push_rules_stream (stream_id, event_stream_ordering, user_id, rule_id, op)"
        " select n, 1, repeat('@long', 300), 'x', 'ADD' from generate_series(2, %s) n", rows + 1,
    )  # fmt: skip
    homeserver.set_last_allocated("push_rules", rows + 1)
    homeserver.set_position("push_rules", "sw1", rows + 1)

    async def request(conversation: Conversation) -> None:
        conversation.send("NAME me", "REPLICATE push_rules 1" if dialect is Dialect.TOKENS else "REPLICATE")
        conversation.writer.write_eof()
        # Wait longer than the server waits for a closing connection.
        await asyncio.sleep(1.5)
        lines = await conversation.read_all()
        if dialect is Dialect.TOKENS:
            tokens = [int(line.split()[2]) for line in lines if line.startswith("RDATA")]
            assert tokens == list(range(2, rows + 2))
        else:
            assert f"POSITION push_rules sw1 {rows + 1} {rows + 1}" in lines
        assert not lines[-1].startswith("ERROR")

    run_conversations(homeserver, dialect, request)


def test_idle_connections_give_way(homeserver: Database) -> None:
    limits = ServerLimits(subscribers=4, per_address=3)

    async def scenario() -> None:
        async with (
            run_server(homeserver.open_reader(), Dialect.TOKENS, limits=limits) as port,
            connect(port) as first, connect(port) as idle, connect(port) as third,
        ):  # fmt: skip
            for client in (first, third):
                client.send("REPLICATE events NOW")
                await client.read_until(lambda line: line == "POSITION events 1")
            async with connect(port) as fourth:
                fourth.send("REPLICATE events NOW")
                await fourth.read_until(lambda line: line == "POSITION events 1")
                assert (await idle.read_all())[-1].startswith("ERROR ")
                async with connect(port) as refused_client:
                    lines = await refused_client.read_all()
                    assert [line.split()[0] for line in lines] == ["SERVER", "ERROR"]
                async with connect(port, "127.0.0.2") as other_address:
                    other_address.send("REPLICATE events NOW")
                    await other_address.read_until(lambda line: line == "POSITION events 1")
                homeserver.add_event(2, "ep1")
                homeserver.complete_events(2)
                for client in (first, third, fourth):
                    await client.read_until(lambda line: line.startswith("RDATA events 2 "))

    asyncio.run(scenario())


def test_the_first_row_of_a_new_writer_is_sent(homeserver: Database) -> None:
    """``ep3`` was unknown before, so its open transaction delayed no subscriber."""
    homeserver.complete_events(4)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE")
        await conversation.read_until(lambda line: line.startswith("POSITION un_partial_stated_room "))
        with psycopg.connect(str(homeserver.settings.synapse_dsn)) as writer_connection:
            writer_connection.execute(
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
            run_server(homeserver.open_reader(), dialect) as port,
            connect(port) as sender, connect(port) as first, connect(port) as second,
        ):  # fmt: skip
            for conversation in (first, second):
                await conversation.read_until(lambda line: line.startswith("SERVER"))
            sender.send("REMOTE_SERVER_UP example.com", "ERROR bye")
            assert [line for line in await sender.read_all() if "UP" in line] == []
            for conversation in (first, second):
                conversation.send("ERROR bye")
                lines = await conversation.read_all()
                assert lines == ([] if dialect is Dialect.TOKENS else ["REMOTE_SERVER_UP example.com"])

    asyncio.run(pass_on())
