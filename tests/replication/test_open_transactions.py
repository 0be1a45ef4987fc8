"""No row of a writer or of an open transaction is skipped."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from tests.replication.conversation import Conversation, run_conversations
from tests.replication.database import Database


@contextmanager
def open_transaction(homeserver: Database) -> Iterator[psycopg.Connection]:
    """Yield a connection of a writer. Its transaction is open until the context ends."""
    with psycopg.connect(str(homeserver.settings.synapse_dsn)) as connection:
        yield connection


def add_event(connection: psycopg.Connection, token: int, writer: str) -> None:
    connection.execute(
        "insert into events (event_id, room_id, type, sender, stream_ordering, topological_ordering, depth,"
        " outlier, processed, instance_name) values (%s, '!r', 'm.room.message', '@a', %s, 1, 1, false, true, %s)",
        [f"$e{abs(token)}", token, writer],
    )


@pytest.mark.parametrize("dialect", [Dialect.TOKENS, Dialect.INSTANCES])
@pytest.mark.parametrize(("stream", "sign"), [("events", 1), ("backfill", -1)])
def test_an_unconfigured_writer_loses_no_row(
    homeserver: Database, dialect: Dialect, stream: str, sign: int, caplog: pytest.LogCaptureFixture
) -> None:
    """``ep3`` has an open transaction while ``ep1`` and ``ep2`` persist later tokens."""
    homeserver.set_last_allocated(stream, 4)
    for writer in ("ep1", "ep2", "ep3"):
        homeserver.set_position(stream, writer, sign * 4)

    async def follow(conversation: Conversation) -> None:
        is_tokens = dialect is Dialect.TOKENS
        conversation.send(f"REPLICATE {stream} NOW" if is_tokens else "REPLICATE")
        end = f"POSITION {stream} 4" if is_tokens else "POSITION un_partial_stated_room"
        await conversation.read_until(lambda line: line.startswith(end))
        homeserver.set_last_allocated(stream, 5)
        with open_transaction(homeserver) as connection:
            add_event(connection, sign * 5, "ep3")
            homeserver.set_last_allocated(stream, 7)
            homeserver.add_event(sign * 6, "ep1")
            for writer in ("ep1", "ep2"):
                homeserver.set_position(stream, writer, sign * 7)
            await asyncio.sleep(0.3)
        homeserver.set_position(stream, "ep3", sign * 7)
        end_lines = {f"POSITION {stream} 7"}
        if not is_tokens:
            end_lines = {f"POSITION {stream} ep1 6 7", f"POSITION {stream} ep2 4 7", f"POSITION {stream} ep3 5 7"}
        lines: list[str] = []
        while not end_lines <= set(lines):
            lines += await conversation.read_until(lambda line: line in end_lines)
        rows = [line.split(" [")[0].removeprefix(f"RDATA {stream} ") for line in lines if line.startswith("RDATA")]
        assert rows == (["5", "6"] if is_tokens else ["ep1 6", "ep3 5"])
        ep3_lines = [line.split(" [")[0] for line in lines if line.split()[1:3] == [stream, "ep3"]]
        assert is_tokens or ep3_lines == [f"RDATA {stream} ep3 5", f"POSITION {stream} ep3 5 7"]

    with caplog.at_level(logging.WARNING):
        run_conversations(homeserver, dialect, follow)
    assert "ep3" in caplog.text


def test_account_data_of_an_unconfigured_writer(homeserver: Database) -> None:
    """Rows of account data name no writer, so each writer with a position may have written them."""

    def add(connection: psycopg.Connection, token: int) -> None:
        connection.execute(
            "insert into account_data (user_id, account_data_type, stream_id, content) values ('@a', %s, %s, '{}')",
            [f"t{token}", token],
        )

    overrides = {"lakehouse_stream_writers": "account_data:worker1"}
    with Database(homeserver.settings.model_copy(update=overrides)) as database:
        for writer in ("worker1", "master"):
            database.set_position("account_data", writer, 4)
        database.set_last_allocated("account_data", 4)

        async def follow(conversation: Conversation) -> None:
            conversation.send("REPLICATE")
            await conversation.read_until(lambda line: line.startswith("POSITION un_partial_stated_room"))
            with open_transaction(database) as connection:
                add(connection, 5)
                database.set_last_allocated("account_data", 6)
                database.set_position("account_data", "worker1", 6)
                await asyncio.sleep(0.3)
            database.set_position("account_data", "master", 5)
            lines = await conversation.read_until(lambda line: line.startswith("RDATA account_data"))
            assert lines[-1].startswith("RDATA account_data worker1 5 ")

        run_conversations(database, Dialect.INSTANCES, follow)


def add_invalidation(connection: psycopg.Connection, token: int) -> None:
    connection.execute(
        "insert into cache_invalidation_stream_by_instance values (%s, 'ep1', 'get_user', '{@a}', 1)", [token]
    )


def _read_caches_position(reader: DatabaseReader) -> int:
    return reader.read_positions().by_stream["caches"]


def test_caches_wait_for_a_late_transaction_id(homeserver: Database) -> None:
    """A transaction that only reads delays no row."""
    for token in (2, 3):
        homeserver.add_invalidation(token, "ep1")
    homeserver.set_last_allocated("caches", 2)
    # The first of 32 IDs writes WAL, and so gets a transaction ID.
    homeserver.execute("select nextval('cache_invalidation_stream_seq')")
    reader = homeserver.open_reader(settle_seconds=0.01)
    with open_transaction(homeserver) as reading_transaction, open_transaction(homeserver) as late_transaction:
        reading_transaction.execute(
            "select last_value, (select count(*) from events) from cache_invalidation_stream_seq"
        )
        (token,) = late_transaction.execute("select nextval('cache_invalidation_stream_seq')").fetchone() or ()
        assert late_transaction.execute("select pg_current_xact_id_if_assigned()").fetchone() == (None,)
        homeserver.execute("select nextval('cache_invalidation_stream_seq')")
        homeserver.add_invalidation(token + 1, "ep1")
        for _ in range(3):
            assert _read_caches_position(reader) < token
        add_invalidation(late_transaction, token)
        for _ in range(3):
            assert _read_caches_position(reader) < token
        late_transaction.commit()
        assert [_read_caches_position(reader) for _ in range(2)][-1] == token + 1
        updates, _ = reader.read_page(("caches", "ep1"), 3, token + 1)
        assert [update.token for update in updates] == [token, token + 1]


def test_caches_advance_on_a_busy_database(homeserver: Database) -> None:
    """A busy homeserver always has an open transaction."""
    reader = homeserver.open_reader(settle_seconds=0.01)
    _read_caches_position(reader)
    with open_transaction(homeserver) as first, open_transaction(homeserver) as second:
        current, upcoming = first, second
        current.execute("select nextval('cache_invalidation_stream_seq')")
        reached = []
        for _ in range(5):
            reached.append(_read_caches_position(reader))
            upcoming.execute("select nextval('cache_invalidation_stream_seq')")
            current.commit()
            current, upcoming = upcoming, current
    assert reached[-1] > reached[1]


def test_caches_wait_for_transactions_on_a_standby(homeserver: Database) -> None:
    homeserver.enter_recovery()
    homeserver.add_invalidation(3, "ep1")
    reader = homeserver.open_reader(settle_seconds=0.2)
    assert _read_caches_position(reader) == 1
    with open_transaction(homeserver) as late_transaction:
        add_invalidation(late_transaction, 2)
        time.sleep(0.3)
        for _ in range(3):
            assert _read_caches_position(reader) == 1
    assert _read_caches_position(reader) == 3
