"""The server follows an upgrade of Synapse while it runs: it announces and sends the streams that the upgrade adds."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.absent_objects import find_absent_objects
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.server import stream_reader
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from tests.replication.conversation import CONVERSATION_SECONDS, Conversation, connect, run_server
from tests.replication.database import CATALOGUE, Database
from tests.support.older_source import Source, hide_additions, show_additions
from tests.support.reader_role import Role, create_role, reader_role

STREAM = "thread_subscriptions"
EXAMINE_SECONDS = 0.1


@pytest.fixture
def older_database(settings: Settings, source_copy: str) -> Iterator[Database]:
    """Yield a database of the oldest release, without events."""
    overrides = {"synapse_dsn": source_copy, "synapse_config": None, "lakehouse_stream_writers": f"{STREAM}:worker"}
    with Database(settings.model_copy(update=overrides)) as database:
        database.empty()
        change_schema(database, hide_additions)
        yield database


def change_schema(database: Database, change_source: Callable[[Source, Catalogue], object]) -> None:
    with psycopg.connect(str(database.settings.synapse_dsn), autocommit=True) as owner:
        change_source(owner, CATALOGUE)


def upgrade(database: Database) -> None:
    """Upgrade Synapse, which then subscribes a user to a thread."""
    change_schema(database, show_additions)
    database.execute(
        "set session_replication_role = replica;"
        f" insert into {STREAM} (stream_id, instance_name, room_id, event_id, user_id, subscribed, automatic)"
        " values (2, 'worker', '!r', '$e', '@a', true, false)"
    )
    database.set_last_allocated(STREAM, 2)
    database.set_position(STREAM, "worker", 2)


def converse(database: Database, dialect: Dialect, request: str, last_line: str) -> list[str]:
    """Send ``request``, upgrade after the answer, and return the later lines up to ``last_line``."""
    reader = DatabaseReader(database.settings, CATALOGUE, settle_seconds=0.05, examine_seconds=EXAMINE_SECONDS)

    async def follow(conversation: Conversation) -> list[str]:
        conversation.send(request)
        await conversation.read_until(lambda line: line.startswith("POSITION"))
        await asyncio.sleep(2 * EXAMINE_SECONDS)
        upgrade(database)
        return await conversation.read_until(lambda line: line == last_line)

    async def scenario() -> list[str]:
        async with (
            run_server(reader, dialect) as port,
            connect(port) as conversation,
            asyncio.timeout(CONVERSATION_SECONDS),
        ):
            return await follow(conversation)

    return asyncio.run(scenario())


@pytest.mark.parametrize("request_line", ["REPLICATE ALL NOW", f"REPLICATE {STREAM} NOW"])
def test_a_new_stream_is_sent_in_the_dialect_of_tokens(older_database: Database, request_line: str) -> None:
    lines = converse(older_database, Dialect.TOKENS, request_line, f'RDATA {STREAM} 2 ["@a","!r","$e"]')
    assert [line for line in lines if STREAM in line][-2:] == [
        f"POSITION {STREAM} 1",
        f'RDATA {STREAM} 2 ["@a","!r","$e"]',
    ]


def test_a_new_stream_is_sent_in_the_dialect_of_instances(older_database: Database) -> None:
    lines = converse(older_database, Dialect.INSTANCES, "REPLICATE", f'RDATA {STREAM} worker 2 ["@a","!r","$e"]')
    assert [line for line in lines if STREAM in line][-2:] == [
        f"POSITION {STREAM} worker 1 1",
        f'RDATA {STREAM} worker 2 ["@a","!r","$e"]',
    ]


def test_the_source_is_examined_once_a_minute(older_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    examination_times, now = list[float](), [1000.0]

    def find_and_record(*arguments: Any) -> Sequence[str]:
        examination_times.append(now[0])
        return find_absent_objects(*arguments)

    monkeypatch.setattr(stream_reader, "find_absent_objects", find_and_record)
    monkeypatch.setattr(stream_reader, "monotonic", lambda: now[0])
    reader = older_database.open_reader()
    for seconds in (0.0, 1.0, 58.0, 1.0, 59.0, 1.0):
        now[0] += seconds
        reader.read_positions()
    assert examination_times == [1000.0, 1060.0, 1120.0]


@pytest.fixture
def role(older_database: Database) -> Iterator[Role]:
    """Yield a role with the privileges that it needs before the upgrade."""
    with reader_role(older_database.settings, str(older_database.settings.synapse_dsn)) as role:
        yield role


@pytest.fixture
def reader(older_database: Database, role: Role) -> Iterator[DatabaseReader]:
    """Yield a reader with this role. It connects when it first reads."""
    settings = older_database.settings.model_copy(update={"synapse_dsn": role.dsn})
    with closing(DatabaseReader(settings, CATALOGUE, settle_seconds=0.05, examine_seconds=0)) as reader:
        yield reader


def grant_again(database: Database, role: Role) -> None:
    create_role(database.settings, role.name, str(database.settings.synapse_dsn))


def test_without_a_grant_the_earlier_streams_are_served(
    older_database: Database, role: Role, reader: DatabaseReader, caplog: pytest.LogCaptureFixture
) -> None:
    earlier_positions = reader.read_positions().by_stream
    assert STREAM not in earlier_positions
    upgrade(older_database)
    with caplog.at_level(logging.WARNING):
        assert [reader.read_positions().by_stream.keys() for _ in range(2)] == [earlier_positions.keys()] * 2
    assert len([record for record in caplog.records if STREAM in record.getMessage()]) == 1
    grant_again(older_database, role)
    assert reader.read_positions().by_stream[STREAM] == 2


def test_a_server_that_starts_without_a_grant_serves_the_earlier_streams(
    older_database: Database, role: Role, reader: DatabaseReader
) -> None:
    upgrade(older_database)
    earlier_positions = [reader.read_positions().by_stream for _ in range(2)]
    assert "events" in earlier_positions[0]
    assert [positions.keys() for positions in earlier_positions] == [earlier_positions[0].keys()] * 2
    assert STREAM not in earlier_positions[0]
    grant_again(older_database, role)
    assert reader.read_positions().by_stream[STREAM] == 2


def test_an_unread_table_without_a_grant_causes_no_warning(
    older_database: Database, role: Role, reader: DatabaseReader, caplog: pytest.LogCaptureFixture
) -> None:
    upgrade(older_database)
    grant_again(older_database, role)
    older_database.execute(f"revoke select on user_reports from {role.name}")
    with caplog.at_level(logging.WARNING):
        assert reader.read_positions().by_stream[STREAM] == 2
    assert not [record for record in caplog.records if "user_reports" in record.getMessage()]


def test_a_restore_without_a_stream_ends_the_subscriptions(older_database: Database) -> None:
    change_schema(older_database, show_additions)
    reader = DatabaseReader(older_database.settings, CATALOGUE, settle_seconds=0.05, examine_seconds=EXAMINE_SECONDS)

    async def scenario() -> list[str]:
        async with (
            run_server(reader, Dialect.TOKENS) as port,
            connect(port) as conversation,
            asyncio.timeout(CONVERSATION_SECONDS),
        ):
            conversation.send("REPLICATE ALL NOW")
            await conversation.read_until(lambda line: line.startswith(f"POSITION {STREAM}"))
            change_schema(older_database, hide_additions)
            return await conversation.read_all()

    assert asyncio.run(scenario())[-1].startswith("ERROR ")
