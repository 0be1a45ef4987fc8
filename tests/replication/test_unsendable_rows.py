"""The server skips and logs rows that fit in no line, and continues their streams, in both dialects."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.replication.protocol.commands import Rdata
from synapse_lakehouse.replication.protocol.decode import parse_line
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.encode import encode_line
from synapse_lakehouse.replication.protocol.framing import MAX_LINE_BYTES
from synapse_lakehouse.replication.protocol.row_json import MAX_ROW_BYTES
from synapse_lakehouse.replication.server.skipped_rows import MAX_LOGGED, SkippedRows
from tests.replication.conversation import Conversation, run_conversations
from tests.replication.database import Database

SECRET = "secret-content"

UNREADABLE = {
    "an infinite number": '{"ts": 1e999}',
    "a negative infinite number": '{"ts": -1e999}',
    "NaN": '{"ts": NaN}',
    "Infinity": '{"ts": [Infinity]}',
    "an integer of 5,000 digits": '{"ts": 1%s}' % ("0" * 5000),
    "nested too deeply": '{"ts": %s}' % ("[" * 3000 + "]" * 3000),
    "nested to where Python's stack ends": '{"ts": %s}' % ("[" * 960 + "]" * 960),
    "hexadecimal": r"\x7b227473223a317d",
    "cut off": '{"ts": tru',
    "empty": "",
    "too long": '{"ts": "%s"}' % ("x" * MAX_ROW_BYTES),
    "too long when it is escaped": '{"ts": "%s"}' % ("é" * (MAX_ROW_BYTES // 6)),
}


def add_receipt(homeserver: Database, token: int, data: str, user: str | None = None) -> None:
    homeserver.execute(
        "insert into receipts_linearized (stream_id, room_id, receipt_type, user_id, event_id, data, instance_name)"
        " values (%s, '!r', 'm.read', %s, '$e', %s, 'sw1')", token, user or f"@{token}", data,
    )  # fmt: skip


def mark_persisted(homeserver: Database, token: int) -> None:
    homeserver.set_last_allocated("receipts", token)
    homeserver.set_position("receipts", "sw1", token)


def heads_of(lines: list[str]) -> list[str]:
    return [line.split(" [")[0] for line in lines if line.startswith(("RDATA receipts", "POSITION receipts"))]


def read_logged_rows(caplog: pytest.LogCaptureFixture) -> list[tuple[object, ...]]:
    """Return stream, stream ID, table and column of each logged row."""
    return [
        record.args[:4]
        for record in caplog.records
        if isinstance(record.args, tuple) and record.name.endswith("skipped_rows") and len(record.args) == 5
    ]


def test_rows_with_invalid_json_are_skipped(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    for token, data in enumerate(UNREADABLE.values(), 2):
        add_receipt(homeserver, token, data.replace("x7b", f"x{SECRET}"))
    end = len(UNREADABLE) + 2
    add_receipt(homeserver, end, '{"ts": 7}')
    mark_persisted(homeserver, end)
    row = f'["!r","m.read","@{end}","$e",null,' + '{"ts":7}]'

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE receipts 0")
        lines = await conversation.read_until(lambda line: line.startswith(f"RDATA receipts {end} "))
        assert heads_of(lines) == ["POSITION receipts 0", f"RDATA receipts {end}"]
        assert lines[-1] == f"RDATA receipts {end} {row}"

    with caplog.at_level(logging.WARNING):
        # The server does not log a row again for the second client.
        run_conversations(homeserver, Dialect.TOKENS, follow, follow)
    logged_rows = read_logged_rows(caplog)
    assert logged_rows == [("receipts", token, "receipts_linearized", "data") for token in range(2, 2 + MAX_LOGGED)]
    assert SECRET not in caplog.text


@pytest.mark.parametrize("dialect", [Dialect.TOKENS, Dialect.INSTANCES])
def test_tokens_of_skipped_rows_are_sent(homeserver: Database, dialect: Dialect) -> None:
    def add_receipts(token: int, rows: dict[str, str]) -> None:
        for user, data in rows.items():
            add_receipt(homeserver, token, data, user)

    good, bad = '{"ts": 7}', '{"ts": 1e999}'

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE receipts NOW" if dialect is Dialect.TOKENS else "REPLICATE")
        await conversation.read_until(
            lambda line: line.startswith(
                "POSITION receipts" if dialect is Dialect.TOKENS else "POSITION un_partial_stated_room"
            )
        )
        add_receipts(2, {"@a": good, "@b": good, "@c": bad})
        add_receipts(3, {"@d": bad, "@e": good})
        add_receipts(4, {"@f": bad})
        add_receipts(5, {"@g": good})
        add_receipts(6, {"@h": bad, "@i": bad})
        mark_persisted(homeserver, 6)
        source = "receipts" if dialect is Dialect.TOKENS else "receipts sw1"
        end = "POSITION receipts 6" if dialect is Dialect.TOKENS else "POSITION receipts sw1 5 6"
        lines = await conversation.read_until(lambda line: line == end)
        assert heads_of(lines) == [
            f"RDATA {source} batch", f"RDATA {source} 2", f"RDATA {source} 3", f"RDATA {source} 5", end,
        ]  # fmt: skip

    # The server reads the writer's name from an earlier row.
    add_receipt(homeserver, 1, good, "@z")
    homeserver.set_position("receipts", "sw1", 1)
    run_conversations(homeserver, dialect, follow)


def test_lone_surrogates_are_sent_as_replacement(homeserver: Database) -> None:
    add_receipt(homeserver, 2, r'{"ts": "\ud800 \u0000 \ud83d\ude00", "other": 5}')
    mark_persisted(homeserver, 2)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE receipts 1")
        lines = await conversation.read_until(lambda line: line.startswith("RDATA receipts 2"))
        assert lines[-1].endswith(r'{"ts":"\ufffd \u0000 \ud83d\ude00"}]')

    run_conversations(homeserver, Dialect.TOKENS, follow)


@contextmanager
def _receipts_view(homeserver: Database, data: str) -> Iterator[None]:
    """Replace the table of receipts by a view whose column ``data`` is the SQL expression ``data``."""
    columns = "stream_id, instance_name, room_id, receipt_type, user_id, event_id, event_stream_ordering, thread_id"
    homeserver.execute("alter table receipts_linearized rename to real_receipts")
    homeserver.execute(f"create view receipts_linearized as select {columns}, {data} as data from real_receipts")
    try:
        yield
    finally:
        homeserver.execute("drop view receipts_linearized")
        homeserver.execute("alter table real_receipts rename to receipts_linearized")


def test_a_row_that_postgresql_cannot_read_is_skipped(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    for token in (2, 3, 4):
        add_receipt(homeserver, token, '{"ts": 7}')
    mark_persisted(homeserver, 4)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE receipts 1")
        lines = await conversation.read_until(lambda line: line.startswith("RDATA receipts 4"))
        assert heads_of(lines) == ["POSITION receipts 1", "RDATA receipts 2", "RDATA receipts 4"]

    with _receipts_view(homeserver, "case when stream_id = 3 then (1 / (stream_id - 3))::text else data end"):
        run_conversations(homeserver, Dialect.TOKENS, follow)
    assert read_logged_rows(caplog) == [("receipts", 3, "receipts_linearized", "unknown")]


def test_text_that_is_not_utf_8_is_skipped(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged page of the database may contain such text."""
    homeserver.execute("create table damaged (text bytea)")
    homeserver.execute(
        r"insert into damaged values ('{\"ts\": \"\303\"}'), ('{}')".replace(r"\"", '"').replace(r"\303", r"\\303")
    )
    homeserver.execute(
        "update pg_attribute set atttypid = 'text'::regtype, attcollation = 100"
        " where attrelid = 'damaged'::regclass and attname = 'text'"
    )
    for token in (2, 3):
        add_receipt(homeserver, token, '{"ts": 7}')
    mark_persisted(homeserver, 3)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE receipts 1")
        lines = await conversation.read_until(lambda line: line.startswith("RDATA receipts 3"))
        assert heads_of(lines) == ["POSITION receipts 1", "RDATA receipts 3"]

    try:
        with _receipts_view(
            homeserver, "case when stream_id = 2 then (select text from damaged limit 1) else data end"
        ):
            run_conversations(homeserver, Dialect.TOKENS, follow)
    finally:
        homeserver.execute("drop table damaged")
    assert read_logged_rows(caplog) == [("receipts", 2, "receipts_linearized", "data")]


def test_an_error_of_the_table_skips_no_row(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    add_receipt(homeserver, 2, '{"ts": 7}')
    mark_persisted(homeserver, 2)
    reader = homeserver.open_reader()
    reader.read_positions()
    homeserver.execute("alter table receipts_linearized rename to real_receipts")
    try:
        with pytest.raises(ReadError):
            reader.read_page(("receipts", None), 1, 2)
    finally:
        homeserver.execute("alter table real_receipts rename to receipts_linearized")
    updates, upto = reader.read_page(("receipts", None), 1, 2)
    assert ([update.token for update in updates], upto) == ([2], 2)
    assert read_logged_rows(caplog) == []


def test_a_writer_with_an_unsendable_name_is_left_out(homeserver: Database, caplog: pytest.LogCaptureFixture) -> None:
    for writer in ("two words", "line\nbreak", "", "x" * 2000):
        homeserver.add_invalidation(2 + len(writer), writer)
    homeserver.set_last_allocated("caches", 2002)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE")
        lines = await conversation.read_until(lambda line: line.startswith("POSITION un_partial_stated_room"))
        assert [line.split()[2] for line in lines if line.startswith("POSITION caches ")] == ["ep1", "ep2", "master"]

    run_conversations(homeserver, Dialect.INSTANCES, follow, follow)
    arguments = [record.args for record in caplog.records if record.name.endswith("replication.server.server")]
    logged_names = [args[1] for args in arguments if isinstance(args, tuple) and len(args) == 2]
    assert sorted(map(str, logged_names)) == sorted(("two words", r"line\nbreak", "", "x" * 2000))


def test_the_largest_rows_can_be_sent(homeserver: Database) -> None:
    """The rows have the most levels and the longest line."""
    for token, data in ((2, "[" * 126 + "]" * 126), (3, f'"{"x" * (MAX_ROW_BYTES - 200)}"')):
        add_receipt(homeserver, token, f'{{"ts": {data}}}')
    mark_persisted(homeserver, 3)
    updates, _ = homeserver.open_reader().read_page(("receipts", None), 1, 3)
    assert [update.token for update in updates] == [2, 3]
    for update in updates:
        command = Rdata("receipts", None, update.token, update.rows[0])
        line = encode_line(command, Dialect.TOKENS)
        assert len(line) <= MAX_LINE_BYTES
        assert parse_line(line, Dialect.TOKENS) == command


def test_many_unsendable_rows_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    rows = SkippedRows(lambda: now)
    with caplog.at_level(logging.WARNING):
        for token in range(1000):
            rows.add("receipts", token, "receipts_linearized", "data", "not JSON")
            rows.add("receipts", 1, "receipts_linearized", "data", "not JSON")
        assert len(caplog.records) == MAX_LOGGED
        now = 60.0
        rows.add("receipts", 1000, "receipts_linearized", "data", "not JSON")
    counted, record = caplog.records[MAX_LOGGED:]
    assert counted.args == (1000 - MAX_LOGGED,)
    assert isinstance(record.args, tuple)
    assert len(record.args) == 5
