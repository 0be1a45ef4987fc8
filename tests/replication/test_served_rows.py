"""The server sends each row of real databases once, in the order of its stream."""

import json
import re
from collections import Counter

import psycopg
import pytest
from psycopg import sql

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS, WITHHELD, Json
from synapse_lakehouse.replication.server import sql as server_sql
from tests.replication.conversation import Conversation, run_conversations
from tests.replication.database import CATALOGUE, Database


def test_every_table_of_a_stream_has_a_schema() -> None:
    schema_tables = {stream: {shape.table for shape in shapes} for stream, shapes in ROW_SCHEMAS.items()}
    assert schema_tables == {
        stream.name: {table.name for table, _ in CATALOGUE.backing_tables(stream.name)} for stream in CATALOGUE.streams
    }


def test_tokens_wait_for_slower_writers_and_gaps(homeserver: Database) -> None:
    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE events NOW")
        await conversation.read_until(lambda line: line == "POSITION events 1")
        for token, writer in ((2, "ep1"), (3, "ep2"), (5, "ep2")):
            homeserver.add_event(token, writer)
        homeserver.set_last_allocated("events", 5)
        homeserver.set_position("events", "ep2", 5)
        homeserver.set_position("events", "ep1", 2)
        # 3 follows 2 without a gap, so it is complete. 4 may still be written by ep1.
        assert [line[:14] for line in await conversation.read_until(lambda line: "$e3" in line)] == [
            "RDATA events 2", "RDATA events 3",
        ]  # fmt: skip
        homeserver.add_event(4, "ep1")
        homeserver.set_position("events", "ep1", 4)
        assert [line[:14] for line in await conversation.read_until(lambda line: "$e5" in line)] == [
            "RDATA events 4", "RDATA events 5",
        ]  # fmt: skip

    run_conversations(homeserver, Dialect.TOKENS, follow)


def test_backfill_counts_up_on_the_wire(homeserver: Database) -> None:
    homeserver.add_event(-7, "ep1")
    homeserver.add_event(-9, "ep2")
    homeserver.set_last_allocated("backfill", 9)
    homeserver.set_position("backfill", "ep1", -7)
    homeserver.set_position("backfill", "ep2", -9)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE backfill 5")
        lines = await conversation.read_until(lambda line: "backfill 7" in line)
        assert [line.split(" [")[0] for line in lines][1:] == [
            "POSITION backfill 5", "RDATA backfill 7",
        ]  # fmt: skip

    run_conversations(homeserver, Dialect.TOKENS, follow)


@pytest.mark.parametrize("stream", ["events", "backfill"])
def test_a_page_is_read_without_later_rows(homeserver: Database, stream: str) -> None:
    """This also holds for a negative stream, of which a homeserver has millions of IDs."""
    sign = -1 if server_sql.is_negative(CATALOGUE, stream) else 1
    homeserver.execute(
        "insert into events (event_id, room_id, type, sender, stream_ordering, topological_ordering, depth, outlier,"
        " processed, instance_name) select '$' || n, '!r', 'm', '@a', %s * n, 1, 1, false, true, 'ep1'"
        " from generate_series(2, 20000) n",
        sign,
    )
    homeserver.execute("analyze events")
    parameters = {"after": 1, "upto": 20_000, "writer": None, "unnamed": "master", "rows": 100}
    with psycopg.connect(str(homeserver.settings.synapse_dsn)) as connection:
        for statement in (
            server_sql.build_page_end_query(CATALOGUE, stream, ROW_SCHEMAS[stream][0]),
            server_sql.build_token_page_query(CATALOGUE, stream),
        ):
            plan = connection.execute(sql.SQL("explain (analyze, format json) ") + statement, parameters).fetchone()
            row_counts = re.findall(r"'Relation Name': 'events'.*?'Actual Rows': (\d+)", str(plan))
            assert [int(count) for count in row_counts] == [100]
            row = connection.execute(statement, parameters).fetchall()
            assert max(row) == (101,)


def test_rows_without_a_writer_belong_to_the_only_one(sample: Database) -> None:
    reader, source = sample.open_reader(), ("account_data", "worker1")
    updates, _ = reader.read_page(source, 1, reader.read_positions().position_of(source))
    reader.close()
    rows = sample.execute(
        "select stream_id from account_data union select stream_id from room_account_data"
        " union select stream_id from room_tags_revisions"
    )
    assert {(update.token,) for update in updates} == set(rows)
    assert len(rows) == 21


def test_every_row_of_the_sample_is_one_line(sample: Database) -> None:
    positions = sample.open_reader().read_positions().by_stream
    streams = sorted(set(positions) - {"caches"})
    row_counts_by_stream: Counter[str] = Counter()
    tokens: dict[str, list[int]] = {stream: [] for stream in streams}

    async def follow(conversation: Conversation) -> None:
        conversation.send(*(f"REPLICATE {stream} 0" for stream in streams))
        reached: dict[str, int] = {}
        while reached != {stream: positions[stream] for stream in streams}:
            match (await conversation.receive() or "").split(" ", 3):
                case ["RDATA", stream, token, row]:
                    json.loads(row)
                    row_counts_by_stream[stream] += 1
                    if token != "batch":
                        tokens[stream].append(int(token))
                        reached[stream] = int(token)
                case ["POSITION", stream, token]:
                    reached[stream] = int(token)

    run_conversations(sample, Dialect.TOKENS, follow)
    announced_tables = {shape.table for shapes in ROW_SCHEMAS.values() for shape in shapes if shape.is_announced}
    for stream in streams:
        sign = -1 if CATALOGUE.stream(stream).sign == "negative" else 1
        stored_rows = [
            sample.execute(
                f"select {sign} * {column} from {table.name} where {sign} * {column} between 1 and {positions[stream]}"
            )
            for table, column in CATALOGUE.backing_tables(stream)
            if table.name in announced_tables
        ]
        # The server sends one row of a message to several devices, and of a change for several servers.
        is_sent_once = stream in ("to_device", "device_lists")
        assert row_counts_by_stream[stream] == sum(
            len(set(rows)) if is_sent_once else len(rows) for rows in stored_rows
        ), stream
        assert tokens[stream] == sorted({token for rows in stored_rows for (token,) in rows}), stream
    assert row_counts_by_stream["events"] > 4000


def test_every_writer_of_caches_is_followed(homeserver: Database) -> None:
    homeserver.add_invalidation(2, "generic_worker1")
    homeserver.set_last_allocated("caches", 2)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE")
        positions = await conversation.read_until(lambda line: line.startswith("POSITION un_partial_stated_room"))
        assert "POSITION caches generic_worker1 2 2" in positions
        homeserver.add_invalidation(3, "media_worker1")
        homeserver.add_invalidation(4, "generic_worker1")
        homeserver.set_last_allocated("caches", 4)
        rows = [await conversation.read_until(lambda line: line.startswith("RDATA")) for _ in range(2)]
        assert {lines[-1] for lines in rows} == {
            'RDATA caches generic_worker1 4 ["get_user_by_id",["@a"],1]',
            'RDATA caches media_worker1 3 ["get_user_by_id",["@a"],1]',
        }  # fmt: skip

    run_conversations(homeserver, Dialect.INSTANCES, follow)


def test_an_open_invalidation_reaches_new_subscribers(homeserver: Database) -> None:
    homeserver.add_invalidation(2, "ep1")
    homeserver.set_last_allocated("caches", 2)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE caches 1")
        await conversation.read_until(lambda line: line.startswith("RDATA caches 2"))
        with psycopg.connect(str(homeserver.settings.synapse_dsn)) as writer_connection:
            writer_connection.execute("select nextval('cache_invalidation_stream_seq')")
            writer_connection.execute(
                "insert into cache_invalidation_stream_by_instance values (3, 'ep1', 'get_user', '{@a}', 1)"
            )
            conversation.send("REPLICATE caches NOW")
            await conversation.read_until(lambda line: line == "POSITION caches 2")
        assert (await conversation.receive() or "").startswith("RDATA caches 3")

    run_conversations(homeserver, Dialect.TOKENS, follow)


def test_the_docs_list_withheld_and_reduced_fields() -> None:
    table = (
        (PROJECT_FOLDER / "docs/reference/replication.md")
        .read_text()
        .partition("| stream | field | in a row |")[2]
        .partition("\n\n")[0]
    )
    documented = {(cells[1].strip(" `"), cells[2]) for line in table.splitlines() if len(cells := line.split("|")) > 3}
    columns = {
        (stream, field.column if isinstance(field, Json) else field)
        for stream, shapes in ROW_SCHEMAS.items()
        for shape in shapes
        for field in shape.fields
        if isinstance(field, Json | str)
        and CATALOGUE.table(shape.table).name not in ("events", "ex_outlier_stream")
        and CATALOGUE.table(shape.table).column(field.column if isinstance(field, Json) else field).projection
    }
    assert columns
    for stream, column in columns:
        assert any(stream == name and f"`{column}`" in fields for name, fields in documented), (stream, column)
    # Synapse itself has no room in a row of global account data.
    withheld = {
        stream for stream, shapes in ROW_SCHEMAS.items() for shape in shapes if WITHHELD in shape.fields
    } - {"account_data"}  # fmt: skip
    assert {name for name, _ in documented} - {"---"} == withheld | {stream for stream, _ in columns}
