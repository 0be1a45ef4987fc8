"""The server answers plain TCP clients from real databases."""

import asyncio
import json
import logging
import re
import signal
import socket
import subprocess
from dataclasses import replace

import pytest

from synapse_lakehouse.replication import service
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.server import async_reader, subscriber
from synapse_lakehouse.replication.server.server import ServerLimits, ServerTiming
from synapse_lakehouse.replication.service import ReplicationServiceError
from tests.conftest import BIN, environment
from tests.replication.conversation import QUICK, Conversation, connect, run_conversations, run_server
from tests.replication.database import Database

SMALL_BUFFER = ServerLimits(buffer_bytes=1 << 16)


def test_a_conversation_in_the_dialect_of_tokens(homeserver: Database) -> None:
    async def follow(conversation: Conversation) -> None:
        assert await conversation.receive() == "SERVER synapse.example"
        assert re.fullmatch(r"PING \d{13}", await conversation.receive() or "")
        conversation.send("NAME synapse.app.appservice", "PING 1490197665618", "")
        conversation.send("REPLICATE events 1", "REPLICATE backfill 1", "REPLICATE caches 1")
        for stream in ("events", "backfill", "caches"):
            assert await conversation.receive() == f"POSITION {stream} 1"
        homeserver.add_invalidation(2, "ep1")
        homeserver.set_last_allocated("caches", 2)
        assert await conversation.receive() == 'RDATA caches 2 ["get_user_by_id",["@a"],1]'
        homeserver.add_event(14, "ep1")
        homeserver.add_state(14, "ep1", "@a", "@b")
        homeserver.complete_events(14)
        expected = '["$e14","!r","m.room.message",null,null,null,null,false,false]'
        assert await conversation.receive() == f'RDATA events batch ["ev",{expected}]'
        assert await conversation.receive() == 'RDATA events batch ["state",["!r","m.room.member","@a","$e14"]]'
        assert await conversation.receive() == 'RDATA events 14 ["state",["!r","m.room.member","@b","$e14"]]'

    run_conversations(homeserver, Dialect.TOKENS, follow)


def test_a_conversation_in_the_dialect_of_instances(homeserver: Database) -> None:
    homeserver.set_last_allocated("events", 53)
    homeserver.set_position("events", "ep1", 53)
    homeserver.set_position("events", "ep2", 40)

    async def follow(conversation: Conversation) -> None:
        conversation.send("PING 1490197665618", "REPLICATE")
        positions = await conversation.read_until(lambda line: line.startswith("POSITION un_partial_stated_room"))
        assert positions[0] == "SERVER synapse.example"
        assert {"POSITION events ep1 53 53", "POSITION events ep2 40 40", "POSITION backfill ep1 1 1"} < set(positions)
        homeserver.add_event(54, "ep1")
        homeserver.add_event(55, "ep2")
        homeserver.set_last_allocated("events", 60)
        homeserver.set_position("events", "ep1", 57)
        assert (await conversation.receive() or "").startswith('RDATA events ep1 54 ["ev",["$e54"')
        assert await conversation.receive() == "POSITION events ep1 54 57"
        homeserver.set_position("events", "ep2", 60)
        assert (await conversation.receive() or "").startswith('RDATA events ep2 55 ["ev",["$e55"')
        assert await conversation.receive() == "POSITION events ep2 55 60"

    run_conversations(homeserver, Dialect.INSTANCES, follow)


def test_the_server_waits_for_a_lost_database(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE events NOW")
        await conversation.read_until(lambda line: line == "POSITION events 1")
        homeserver.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'synapse-lakehouse' and datname = current_database()"
        )
        while async_reader.__name__ not in {record.name for record in caplog.records}:
            await asyncio.sleep(0.02)
        homeserver.add_event(2, "ep1")
        homeserver.complete_events(2)
        await conversation.read_until(lambda line: line.startswith("RDATA events 2"))

    with caplog.at_level(logging.WARNING):
        run_conversations(homeserver, Dialect.TOKENS, follow)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("replicate events 0", "ERROR REPLICATE: "),
        ("REPLICATE\tevents\t0", "ERROR REPLICATE: "),
        (" REPLICATE events 0", "ERROR REPLICATE: "),
        ("REPLICATE events\t0", "ERROR REPLICATE: "),
        ("REPLICATE nothing 0", "ERROR REPLICATE: "),
        ("REPLICATE events -5", "ERROR events: "),
        ("REPLICATE ALL 5", "ERROR REPLICATE: "),
        ("RDATA events 5 []", "ERROR RDATA: "),
        ("NAME \udcff", "ERROR NAME: "),
        ("POST / HTTP/1.1\r\n\r\nREMOTE_SERVER_UP evil.example", "ERROR POST: "),
        ("x" * 70_000, "ERROR "),
    ],
)
def test_invalid_commands_end_with_an_error(sample: Database, line: str, answer: str) -> None:
    async def request(conversation: Conversation) -> None:
        conversation.writer.write(line.encode(errors="surrogateescape") + b"\n")
        lines = await conversation.read_all()
        assert lines[-1].startswith(answer)

    run_conversations(sample, Dialect.TOKENS, request)


def test_commands_of_clients_are_recorded(sample: Database) -> None:
    expected = [
        c.UserSync("@a:x", True, 5, "id"),
        c.ClearUserSync("id"),
        c.FederationAck(5, "fed"),
        c.RemovePusher("app", "key", "@a:x"),
        c.InvalidateCache("f", [1]),
        c.RemoteServerUp("y"),
    ]

    async def send_commands(conversation: Conversation) -> None:
        conversation.send("USER_SYNC id @a:x start 5", "CLEAR_USER_SYNC id", "FEDERATION_ACK fed 5", "WHAT is this")
        conversation.send("REMOVE_PUSHER app key @a:x", "INVALIDATE_CACHE f [1]", "REMOTE_SERVER_UP y", "", "REPLICATE")
        await conversation.read_until(lambda line: line.startswith("POSITION"))

    assert run_conversations(sample, Dialect.INSTANCES, send_commands) == expected


def test_silence_ends_only_connections_that_sent_a_ping(sample: Database) -> None:
    async def ping_and_stop(conversation: Conversation) -> None:
        conversation.send("PING 1")
        lines = await conversation.read_until(lambda line: line.startswith("ERROR"))
        assert lines[-1].startswith("ERROR ")
        assert await conversation.receive() is None

    async def ping_and_send_unknown_commands(conversation: Conversation) -> None:
        conversation.send("PING 1")
        received = asyncio.create_task(conversation.read_until(lambda line: line.startswith("ERROR")))
        while not received.done():
            conversation.send("WHAT is this", "")
            await asyncio.sleep(0.1)
        assert received.result()[-1].startswith("ERROR ")

    async def send_no_ping(conversation: Conversation) -> None:
        conversation.send("NAME me")
        pings = 0
        while pings < 8:
            pings += (await conversation.receive() or "").startswith("PING")

    steps = (ping_and_stop, ping_and_send_unknown_commands, send_no_ping)
    run_conversations(sample, Dialect.TOKENS, *steps, timing=ServerTiming(ping=0.1, silence=0.4))


def test_a_stalled_subscriber_is_disconnected(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    rows = 20_000
    _add_long_rules(homeserver, rows)
    last = 1

    async def stall(conversation: Conversation) -> None:
        nonlocal last
        conversation.send("REPLICATE push_rules 1")
        conversation.transport.pause_reading()
        while not _subscriber_warnings(caplog):
            await asyncio.sleep(0.05)
        conversation.transport.resume_reading()
        last = await _last_token(conversation, rows + 1)

    async def resume(conversation: Conversation) -> None:
        conversation.send(f"REPLICATE push_rules {last}")
        assert await _last_token(conversation, rows + 1) == rows + 1

    with caplog.at_level(logging.WARNING):
        run_conversations(
            homeserver, Dialect.TOKENS, stall, resume, timing=ServerTiming(congestion=0.3), limits=SMALL_BUFFER
        )
    assert 1 < last < rows


def test_a_slow_subscriber_receives_everything(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    rows = 30_000
    homeserver.execute(
        "insert into push_rules_stream (stream_id, event_stream_ordering, user_id, rule_id, op)"
        " select 2, 1, repeat('@long', 100), 'x', 'ADD' from generate_series(1, %s)", rows,
    )  # fmt: skip
    _set_rule_position(homeserver, 2)

    async def read_slowly(conversation: Conversation) -> None:
        # A small receive buffer keeps the pieces small that the kernel delivers.
        conversation.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        conversation.send("REPLICATE push_rules 1")
        ending = b""
        while b"RDATA push_rules 2 " not in ending:
            data = await conversation.reader.read(1 << 16)
            assert data, "the server closed the connection"
            ending = ending[-600:] + data
            await asyncio.sleep(0.02)

    with caplog.at_level(logging.WARNING):
        run_conversations(
            homeserver, Dialect.TOKENS, read_slowly, timing=ServerTiming(congestion=1.0), limits=SMALL_BUFFER
        )
    assert not _subscriber_warnings(caplog)


def test_a_late_reader_receives_the_final_error(homeserver: Database) -> None:
    """After the error, the server accepts new subscribers."""
    timing, rows = replace(QUICK, closing=30.0), 20_000
    _add_long_rules(homeserver, rows)

    async def scenario() -> None:
        async with run_server(homeserver.open_reader(), Dialect.TOKENS, timing=timing, limits=SMALL_BUFFER) as port:
            async with connect(port) as slow_client, connect(port) as live_client:
                slow_client.send("REPLICATE push_rules 1")
                slow_client.transport.pause_reading()
                live_client.send("REPLICATE events NOW")
                await live_client.read_until(lambda line: line == "POSITION events 1")
                await asyncio.sleep(0.5)
                _set_rule_position(homeserver, rows // 2)
                assert (await live_client.read_all())[-1].startswith("ERROR ")
                slow_client.transport.resume_reading()
                assert (await slow_client.read_all())[-1].startswith("ERROR ")
            async with connect(port) as new_client:
                new_client.send("REPLICATE push_rules NOW")
                await new_client.read_until(lambda line: line == f"POSITION push_rules {rows // 2}")

    asyncio.run(scenario())


def _add_long_rules(homeserver: Database, count: int) -> None:
    homeserver.execute(
        "insert into push_rules_stream (stream_id, event_stream_ordering, user_id, rule_id, op)"
        " select n, 1, repeat('@long', 100), 'x', 'ADD' from generate_series(2, %s) n", count + 1,
    )  # fmt: skip
    _set_rule_position(homeserver, count + 1)


def _set_rule_position(homeserver: Database, rule: int) -> None:
    homeserver.set_last_allocated("push_rules", rule)
    homeserver.set_position("push_rules", "sw1", rule)


async def _last_token(conversation: Conversation, upto: int) -> int:
    """Return the last complete token before the end, or ``upto``; each token must follow the previous one."""
    token = None
    while token != upto:
        try:
            line = await conversation.reader.readuntil()
        except (asyncio.IncompleteReadError, ConnectionResetError):
            break
        if line.startswith(b"RDATA"):
            next_token = int(line.split()[2])
            assert token in (None, next_token - 1)
            token = next_token
    return token or 0


def test_the_command_serves_the_sample(sample: Database) -> None:
    server = subprocess.Popen(
        [BIN / "lakehouse", "replicate", "serve", "--dialect", "tokens", "--port", "0"],
        env=environment(sample.settings), cwd=sample.settings.lakehouse_home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert server.stdout
        line = server.stdout.readline()
        address = re.fullmatch(r"Serving the streams of synapse.example on 127.0.0.1:(\d+), dialect tokens.\n", line)
        assert address, line + server.communicate(timeout=60)[1]
        with socket.create_connection(("127.0.0.1", int(address[1])), timeout=60) as client_socket:
            lines = client_socket.makefile("rw", newline="\n")
            lines.write("NAME netcat\nUSER_SYNC id @a:x start 5\nREPLICATE events 4400\n")
            lines.flush()
            while not lines.readline().startswith("RDATA events"):
                pass
            server.send_signal(signal.SIGTERM)
            assert lines.readlines()[-1] == "ERROR server stopping\n"
        assert server.wait(timeout=60) == 0
        log_file = sample.settings.lakehouse_home / "logs/replication/received.jsonl"
        record = json.loads(log_file.read_text().splitlines()[-1])
        assert (record["from"], record["command"], record["user_id"]) == (
            "subscriber 1 (netcat)",
            "USER_SYNC",
            "@a:x",
        )
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("host", ["nowhere.invalid", "203.0.113.7"])
def test_an_unusable_address_is_reported(sample: Database, host: str) -> None:
    with pytest.raises(ReplicationServiceError, match=re.escape(host)):
        service.serve(sample.settings, Dialect.TOKENS, host, 0, print)


def _subscriber_warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == subscriber.__name__]
