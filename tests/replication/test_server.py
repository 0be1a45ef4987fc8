"""The server on real databases, spoken to as with netcat."""

import asyncio
import json
import logging
import re
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from synapse_lakehouse.replication import commands as c
from synapse_lakehouse.replication import feed, service, subscriber
from synapse_lakehouse.replication.grammar import Dialect
from synapse_lakehouse.replication.server import Timing
from synapse_lakehouse.replication.service import ServiceError
from synapse_lakehouse.replication.shapes import SHAPES
from synapse_lakehouse.source.connection import Connection
from tests.conftest import BIN, environment
from tests.replication.conversation import QUICK, Conversation, connected, serving
from tests.replication.database import KNOWN, Database

Talk = Callable[[Conversation], Awaitable[None]]


def talk(source: Database, dialect: Dialect, *talks: Talk, timing: Timing = QUICK) -> list[c.Command]:
    """Serve ``source`` and hold conversations one after the other; returns what was recorded."""
    recorded: list[c.Command] = []

    async def all_of_it() -> None:
        async with serving(source.feed(), dialect, timing=timing, recorded=recorded) as port:
            for one in talks:
                async with connected(port) as conversation:
                    await one(conversation)

    asyncio.run(all_of_it())
    return recorded


def test_every_stream_of_the_catalogue_has_a_shape_for_each_of_its_tables() -> None:
    shaped = {stream: {shape.table for shape in shapes} for stream, shapes in SHAPES.items()}
    assert shaped == {stream.name: {table.name for table, _ in KNOWN.backing(stream.name)} for stream in KNOWN.streams}


def test_the_first_dialects_conversation(homeserver: Database) -> None:
    async def follow(conversation: Conversation) -> None:
        assert await conversation.hear() == "SERVER synapse.example"
        assert re.fullmatch(r"PING \d{13}", await conversation.hear() or "")
        conversation.say("NAME synapse.app.appservice", "PING 1490197665618", "")
        conversation.say("REPLICATE events 1", "REPLICATE backfill 1", "REPLICATE caches 1")
        for stream in ("events", "backfill", "caches"):
            assert await conversation.hear() == f"POSITION {stream} 1"
        homeserver.invalidation(2, "ep1")
        homeserver.handed_out("caches", 2)
        assert await conversation.hear() == "RDATA caches 2 [null,null,null]"
        homeserver.event(14, "ep1")
        homeserver.state(14, "ep1", "@a", "@b")
        homeserver.done(14)
        expected = '["$e14","!r","m.room.message",null,null,null,null,false,false]'
        assert await conversation.hear() == f'RDATA events batch ["ev",{expected}]'
        assert await conversation.hear() == 'RDATA events batch ["state",["!r","m.room.member","@a","$e14"]]'
        assert await conversation.hear() == 'RDATA events 14 ["state",["!r","m.room.member","@b","$e14"]]'

    talk(homeserver, Dialect.TOKENS, follow)


def test_the_present_dialects_conversation(homeserver: Database) -> None:
    homeserver.handed_out("events", 53)
    homeserver.position("events", "ep1", 53)
    homeserver.position("events", "ep2", 40)

    async def follow(conversation: Conversation) -> None:
        conversation.say("PING 1490197665618", "REPLICATE")
        positions = await conversation.until(lambda line: line.startswith("POSITION un_partial_stated_room"))
        assert positions[0] == "SERVER synapse.example"
        assert {"POSITION events ep1 53 53", "POSITION events ep2 40 40", "POSITION backfill ep1 1 1"} < set(positions)
        homeserver.event(54, "ep1")
        homeserver.event(55, "ep2")
        homeserver.handed_out("events", 60)
        homeserver.position("events", "ep1", 57)
        assert (await conversation.hear() or "").startswith('RDATA events ep1 54 ["ev",["$e54"')
        assert await conversation.hear() == "POSITION events ep1 54 57"
        homeserver.position("events", "ep2", 60)
        assert (await conversation.hear() or "").startswith('RDATA events ep2 55 ["ev",["$e55"')
        assert await conversation.hear() == "POSITION events ep2 55 60"

    talk(homeserver, Dialect.INSTANCES, follow)


def test_tokens_wait_for_the_writer_that_is_behind_and_for_gaps(homeserver: Database) -> None:
    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE events NOW")
        await conversation.until(lambda line: line == "POSITION events 1")
        for token, writer in ((2, "ep1"), (3, "ep2"), (5, "ep2")):
            homeserver.event(token, writer)
        homeserver.handed_out("events", 5)
        homeserver.position("events", "ep2", 5)
        homeserver.position("events", "ep1", 2)
        # 3 follows 2 without a gap, so it is complete. 4 may still be written by ep1.
        assert [line[:14] for line in await conversation.until(lambda line: "$e3" in line)] == [
            "RDATA events 2", "RDATA events 3",
        ]  # fmt: skip
        homeserver.event(4, "ep1")
        homeserver.position("events", "ep1", 4)
        assert [line[:14] for line in await conversation.until(lambda line: "$e5" in line)] == [
            "RDATA events 4", "RDATA events 5",
        ]  # fmt: skip

    talk(homeserver, Dialect.TOKENS, follow)


def test_a_lost_database_is_waited_for(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE events NOW")
        await conversation.until(lambda line: line == "POSITION events 1")
        homeserver.do(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'synapse-lakehouse' and datname = current_database()"
        )
        while "cannot be read, trying again" not in caplog.text:
            await asyncio.sleep(0.02)
        homeserver.event(2, "ep1")
        homeserver.done(2)
        await conversation.until(lambda line: line.startswith("RDATA events 2"))

    with caplog.at_level(logging.WARNING):
        talk(homeserver, Dialect.TOKENS, follow)


def test_backfill_counts_up_on_the_wire(homeserver: Database) -> None:
    homeserver.event(-7, "ep1")
    homeserver.event(-9, "ep2")
    homeserver.handed_out("backfill", 9)
    homeserver.position("backfill", "ep1", -7)
    homeserver.position("backfill", "ep2", -9)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE backfill 5")
        assert [line.split(" [")[0] for line in await conversation.until(lambda line: "backfill 7" in line)][1:] == [
            "POSITION backfill 5", "RDATA backfill 7",
        ]  # fmt: skip

    talk(homeserver, Dialect.TOKENS, follow)


def test_rows_that_name_no_writer_are_those_of_the_only_one(sample: Database) -> None:
    feed, source = sample.feed(), ("account_data", "worker1")
    updates, _ = feed.page(source, 1, feed.heads().of(source))
    feed.close()
    rows = sample.do(
        "select stream_id from account_data union select stream_id from room_account_data"
        " union select stream_id from room_tags_revisions"
    )
    assert {(update.token,) for update in updates} == set(rows)
    assert len(rows) == 21


def test_there_is_a_line_for_every_row_of_the_sample_and_no_more(sample: Database) -> None:
    heads = sample.feed().heads().linear
    streams = sorted(set(heads) - {"caches"})
    seen: Counter[str] = Counter()
    tokens: dict[str, list[int]] = {stream: [] for stream in streams}

    async def follow(conversation: Conversation) -> None:
        conversation.say(*(f"REPLICATE {stream} 0" for stream in streams))
        at: dict[str, int] = {}
        while at != {stream: heads[stream] for stream in streams}:
            match (await conversation.hear() or "").split(" ", 3):
                case ["RDATA", stream, token, row]:
                    json.loads(row)
                    seen[stream] += 1
                    if token != "batch":
                        tokens[stream].append(int(token))
                        at[stream] = int(token)
                case ["POSITION", stream, token]:
                    at[stream] = int(token)

    talk(sample, Dialect.TOKENS, follow)
    for stream in streams:
        sign = -1 if KNOWN.stream(stream).sign == "negative" else 1
        counted = [
            sample.do(
                f"select {sign} * {column} from {table.name} where {sign} * {column} between 1 and {heads[stream]}"
            )
            for table, column in KNOWN.backing(stream)
        ]
        assert seen[stream] == sum(map(len, counted)), stream
        assert tokens[stream] == sorted({token for rows in counted for (token,) in rows}), stream
    assert seen["events"] > 4000


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (
            "REPLICATE typing 0",
            "ERROR typing: Synapse keeps this stream in memory only, so its database does not have it",
        ),
        ("REPLICATE nothing 0", "ERROR REPLICATE: there is no such stream. There are: account_data, backfill, "),
        ("REPLICATE events -5", "ERROR events: tokens count up from 0, also those of streams with negative ids"),
        ("REPLICATE ALL 5", "ERROR REPLICATE: ALL goes with NOW, and with nothing else"),
        ("RDATA events 5 []", "ERROR RDATA: only servers send this"),
        ("NAME \udcff", "ERROR NAME: not UTF-8"),
        ("x" * 70_000, "ERROR a line of more than 65536 bytes"),
    ],
)
def test_what_cannot_be_is_answered_with_an_error_and_the_end(sample: Database, said: str, answer: str) -> None:
    async def ask(conversation: Conversation) -> None:
        conversation.writer.write(said.encode(errors="surrogateescape") + b"\n")
        lines = await conversation.to_the_end()
        assert lines[-1].startswith(answer)

    talk(sample, Dialect.TOKENS, ask)


def test_what_clients_tell_is_recorded_and_what_is_unknown_does_no_harm(sample: Database) -> None:
    told = [
        c.UserSync("@a:x", True, 5, "id"),
        c.ClearUserSync("id"),
        c.FederationAck(5, "fed"),
        c.RemovePusher("app", "key", "@a:x"),
        c.InvalidateCache("f", [1]),
        c.RemoteServerUp("y"),
    ]

    async def tell(conversation: Conversation) -> None:
        conversation.say("USER_SYNC id @a:x start 5", "CLEAR_USER_SYNC id", "FEDERATION_ACK fed 5", "WHAT is this")
        conversation.say("REMOVE_PUSHER app key @a:x", "INVALIDATE_CACHE f [1]", "REMOTE_SERVER_UP y", "", "REPLICATE")
        await conversation.until(lambda line: line.startswith("POSITION"))

    assert talk(sample, Dialect.INSTANCES, tell) == told


def test_silence_ends_only_connections_that_sent_a_ping(sample: Database) -> None:
    async def be_silent_after_a_ping(conversation: Conversation) -> None:
        conversation.say("PING 1")
        lines = await conversation.until(lambda line: line.startswith("ERROR"))
        assert lines[-1] == "ERROR no command was heard for 0.4 s"
        assert await conversation.hear() is None

    async def be_silent(conversation: Conversation) -> None:
        conversation.say("NAME me")
        pings = 0
        while pings < 8:
            pings += (await conversation.hear() or "").startswith("PING")

    talk(sample, Dialect.TOKENS, be_silent_after_a_ping, be_silent, timing=Timing(ping=0.1, silence=0.4))


def test_a_subscriber_that_does_not_read_is_cut_off_loudly_and_catches_up_later(
    homeserver: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subscriber, "BUFFER_BYTES", 1 << 16)
    rows = 20_000
    homeserver.do(
        "insert into push_rules_stream (stream_id, event_stream_ordering, user_id, rule_id, op)"
        " select n, 1, repeat('@long', 100), 'x', 'ADD' from generate_series(2, %s) n", rows + 1,
    )  # fmt: skip
    homeserver.handed_out("push_rules", rows + 1)
    homeserver.position("push_rules", "sw1", rows + 1)
    last = 1

    async def stall(conversation: Conversation) -> None:
        nonlocal last
        conversation.say("REPLICATE push_rules 1")
        conversation.reader._transport.pause_reading()
        while "does not keep up" not in caplog.text:
            await asyncio.sleep(0.05)
        conversation.reader._transport.resume_reading()
        last = await _last_token(conversation, rows + 1)

    async def resume(conversation: Conversation) -> None:
        conversation.say(f"REPLICATE push_rules {last}")
        assert await _last_token(conversation, rows + 1) == rows + 1

    with caplog.at_level(logging.WARNING):
        talk(homeserver, Dialect.TOKENS, stall, resume, timing=Timing(congestion=0.3))
    assert 1 < last < rows


def test_a_subscriber_that_reads_slowly_gets_everything(
    homeserver: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subscriber, "BUFFER_BYTES", 1 << 16)
    rows = 30_000
    homeserver.do(
        "insert into push_rules_stream (stream_id, event_stream_ordering, user_id, rule_id, op)"
        " select 2, 1, repeat('@long', 100), 'x', 'ADD' from generate_series(1, %s)", rows,
    )  # fmt: skip
    homeserver.handed_out("push_rules", 2)
    homeserver.position("push_rules", "sw1", 2)

    async def read_slowly(conversation: Conversation) -> None:
        # What the kernel holds would come in few and large pieces otherwise.
        conversation.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        conversation.say("REPLICATE push_rules 1")
        ending = b""
        while b"RDATA push_rules 2 " not in ending:
            data = await conversation.reader.read(1 << 16)
            assert data, "cut off"
            ending = ending[-600:] + data
            await asyncio.sleep(0.02)

    with caplog.at_level(logging.WARNING):
        talk(homeserver, Dialect.TOKENS, read_slowly, timing=Timing(congestion=1.0))
    assert "does not keep up" not in caplog.text


async def _last_token(conversation: Conversation, upto: int) -> int:
    """The last token heard whole before the end, or ``upto``; each must follow the one before."""
    token = None
    while token != upto:
        try:
            line = await conversation.reader.readuntil()
        except (asyncio.IncompleteReadError, ConnectionResetError):
            break
        if line.startswith(b"RDATA"):
            following = int(line.split()[2])
            assert token in (None, following - 1)
            token = following
    return token or 0


def test_the_command_serves_the_sample_and_says_good_bye(sample: Database) -> None:
    serve = subprocess.Popen(
        [BIN / "lakehouse", "replicate", "serve", "--dialect", "tokens", "--port", "0"],
        env=environment(sample.settings), cwd=sample.settings.lakehouse_home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert serve.stdout
        said = serve.stdout.readline()
        where = re.fullmatch(r"Serving the streams of synapse.example on 127.0.0.1:(\d+), dialect tokens.\n", said)
        assert where, said + serve.communicate(timeout=60)[1]
        with socket.create_connection(("127.0.0.1", int(where[1])), timeout=60) as connection:
            lines = connection.makefile("rw", newline="\n")
            lines.write("NAME netcat\nUSER_SYNC id @a:x start 5\nREPLICATE events 4400\n")
            lines.flush()
            while not lines.readline().startswith("RDATA events"):
                pass
            serve.send_signal(signal.SIGTERM)
            assert lines.readlines()[-1] == "ERROR server stopping\n"
        assert serve.wait(timeout=60) == 0
        recorded = sample.settings.lakehouse_home / "logs/replication/received.jsonl"
        kept = json.loads(recorded.read_text().splitlines()[-1])
        assert (kept["from"], kept["command"], kept["user_id"]) == ("subscriber 1 (netcat)", "USER_SYNC", "@a:x")
    finally:
        serve.kill()
        serve.communicate()


@pytest.mark.parametrize("host", ["nowhere.invalid", "203.0.113.7"])
def test_an_address_that_cannot_be_opened_is_named(sample: Database, host: str) -> None:
    with pytest.raises(ServiceError, match=f"on {host} cannot be opened"):
        service.serve(sample.settings, Dialect.TOKENS, host, 0, print)


def test_whoever_writes_caches_is_followed(homeserver: Database) -> None:
    homeserver.invalidation(2, "generic_worker1")
    homeserver.handed_out("caches", 2)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE")
        positions = await conversation.until(lambda line: line.startswith("POSITION un_partial_stated_room"))
        assert "POSITION caches generic_worker1 2 2" in positions
        homeserver.invalidation(3, "media_worker1")
        homeserver.invalidation(4, "generic_worker1")
        homeserver.handed_out("caches", 4)
        rows = [await conversation.until(lambda line: line.startswith("RDATA")) for _ in range(2)]
        assert {lines[-1] for lines in rows} == {
            "RDATA caches generic_worker1 4 [null,null,null]", "RDATA caches media_worker1 3 [null,null,null]",
        }  # fmt: skip

    talk(homeserver, Dialect.INSTANCES, follow)


def test_a_standby_passes_over_no_row_of_caches(homeserver: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = feed._transactions

    def as_in_recovery(connection: Connection) -> tuple[int, int, bool]:
        return *seen(connection)[:2], True

    monkeypatch.setattr(feed, "_transactions", as_in_recovery)
    homeserver.invalidation(2, "ep1")
    # Its log has a sequence 32 ahead.
    homeserver.handed_out("caches", 34)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE caches NOW")
        await conversation.until(lambda line: line == "POSITION caches 2")
        for token in (3, 4):
            await asyncio.sleep(0.2)
            homeserver.invalidation(token, "ep1")
            assert await conversation.hear() == f"RDATA caches {token} [null,null,null]"

    talk(homeserver, Dialect.TOKENS, follow)


def test_who_followed_a_database_that_went_back_is_told(homeserver: Database) -> None:
    homeserver.done(20)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE events 20")
        await conversation.until(lambda line: line == "POSITION events 20")
        homeserver.done(10)
        assert (await conversation.to_the_end())[-1].startswith("ERROR the database went back")

    async def begin_again(conversation: Conversation) -> None:
        conversation.say("REPLICATE events 20")
        await conversation.until(lambda line: line == "POSITION events 10")
        homeserver.event(11, "ep1")
        homeserver.done(11)
        assert (await conversation.hear() or "").startswith("RDATA events 11")

    talk(homeserver, Dialect.TOKENS, follow, begin_again)


def test_who_followed_the_writer_that_was_ahead_is_told_that_the_database_went_back(homeserver: Database) -> None:
    """To where another writer had not come yet."""
    homeserver.handed_out("events", 60)
    homeserver.position("events", "ep1", 53)
    homeserver.position("events", "ep2", 40)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE")
        await conversation.until(lambda line: line == "POSITION events ep1 53 53")
        homeserver.handed_out("events", 45)
        homeserver.position("events", "ep1", 45)
        assert (await conversation.to_the_end())[-1].startswith("ERROR the database went back")

    talk(homeserver, Dialect.INSTANCES, follow)


def test_no_history_is_sent_where_a_writer_has_no_position_yet(homeserver: Database) -> None:
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


def test_no_history_of_a_writer_is_sent_that_has_no_position_yet(homeserver: Database) -> None:
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


def test_where_nobody_s_position_is_known_a_restore_takes_back_where_to_begin(homeserver: Database) -> None:
    def rule(token: int) -> None:
        homeserver.do("insert into push_rules_stream values (%s, 1, '@a', 'x', 'ADD', null, null, 'sw1')", token)

    for token in (2, 9):
        rule(token)
    homeserver.handed_out("push_rules", 9)
    feed = homeserver.feed()
    assert feed.heads().unbounded["push_rules"] == 9
    homeserver.do("delete from push_rules_stream where stream_id = 9")
    homeserver.handed_out("push_rules", 4)
    assert feed.heads().unbounded["push_rules"] == 2


def test_an_invalidation_that_was_under_way_is_sent_to_who_came_meanwhile(homeserver: Database) -> None:
    homeserver.invalidation(2, "ep1")
    homeserver.handed_out("caches", 2)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE caches 1")
        await conversation.until(lambda line: line.startswith("RDATA caches 2"))
        with psycopg.connect(str(homeserver.settings.synapse_dsn)) as writing:
            writing.execute("select nextval('cache_invalidation_stream_seq')")
            writing.execute(
                "insert into cache_invalidation_stream_by_instance values (3, 'ep1', 'get_user', '{@a}', 1)"
            )
            conversation.say("REPLICATE caches NOW")
            await conversation.until(lambda line: line == "POSITION caches 2")
        assert (await conversation.hear() or "").startswith("RDATA caches 3")

    talk(homeserver, Dialect.TOKENS, follow)


def test_a_row_that_is_nested_too_deeply_stops_nobody(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A receipt's time comes from other homeservers as it is."""
    deep = "[" * 3000 + "]" * 3000
    for token, ts in ((2, deep), (3, "7")):
        homeserver.do(
            "insert into receipts_linearized (stream_id, room_id, receipt_type, user_id, event_id, data, instance_name)"
            " values (%s, '!r', 'm.read', %s, '$e', %s, 'sw1')", token, f"@{token}", f'{{"ts": {ts}}}',
        )  # fmt: skip
    homeserver.handed_out("receipts", 3)
    homeserver.position("receipts", "sw1", 3)

    async def follow(conversation: Conversation) -> None:
        conversation.say("REPLICATE receipts 1")
        lines = await conversation.until(lambda line: line.startswith("RDATA receipts 3"))
        assert "RDATA receipts 2 null" in lines
        assert '"ts":7' in lines[-1].replace(" ", "")

    talk(homeserver, Dialect.TOKENS, follow)
    assert "nested too deeply" in caplog.text
