"""Run the client classes of a Synapse release against ``lakehouse replicate serve``."""

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from signal import SIGTERM
from typing import Any, Final

from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS, Release, parse_release
from synapse_lakehouse.replication.protocol.stream_tokens import Source
from tests.replication import every_stream
from tests.replication.conversation import run_serve_command
from tests.replication.database import CATALOGUE, Database

CLIENT: Final = Path(__file__).with_name("synapse_client.py")
SECONDS: Final = 300

Token = tuple[str, str | None, int]


def follow_release(database: Database, version: str, python: Path) -> tuple[dict[Token, list[Any]], set[str]]:
    """Serve the database to a release, and require that it parses every row of every table once.

    :param python: the Python of the release.
    :returns: the rows by token, and the streams of the release that have a table.
    """
    release = parse_release(version)
    assert release
    dialect = Dialect.TOKENS if release < (1, 13) else Dialect.INSTANCES
    expected = dict(_rows(database, release, dialect))
    if dialect is Dialect.TOKENS:
        table_streams, received = asyncio.run(_follow(database, version, python, dialect, expected, None))
    else:
        with every_stream.positions_at_the_beginning(database) as restore:
            table_streams, received = asyncio.run(_follow(database, version, python, dialect, expected, restore))

    relevant_rows = {token: rows for token, rows in expected.items() if token[0] in table_streams}
    assert received.keys() == relevant_rows.keys()
    for token, rows in relevant_rows.items():
        assert [_fields(row) for row in received[token]] == rows, token
    _require_every_stored_row(relevant_rows, database)
    return relevant_rows, table_streams


def _require_every_stored_row(relevant_rows: Mapping[Token, Any], database: Database) -> None:
    """Require that the received tokens are the IDs in the tables."""
    tokens: dict[str, set[int]] = {}
    for stream, _, token in relevant_rows:
        tokens.setdefault(stream, set()).add(token)
    for stream, actual in tokens.items():
        sign = -1 if CATALOGUE.stream(stream).sign == "negative" else 1
        announced = {shape.table for shape in ROW_SCHEMAS[stream] if shape.is_announced}
        ids = {
            token
            for table, column in CATALOGUE.backing_tables(stream)
            if table.name in announced
            for (token,) in database.execute(
                f"select {sign} * {column} from {table.name} where {sign} * {column} > 0"
                + " and event_id in (select event_id from events)" * (table.name == "ex_outlier_stream")
            )
        }
        assert actual == ids, stream


def _rows(database: Database, release: Release, dialect: Dialect) -> Iterator[tuple[Token, list[Any]]]:
    """Yield tokens, each with the rows that the server reads for it."""
    reader = database.open_reader(release=release)
    positions = reader.read_positions()
    while positions.by_stream["caches"] < positions.last_allocated["caches"]:
        positions = reader.read_positions()
    sources: list[Source] = [(stream, None) for stream in positions.by_stream]
    for source in sources if dialect is Dialect.TOKENS else positions.by_instance:
        after, upto = 0, positions.position_of(source)
        while after < upto:
            updates, after = reader.read_page(source, after, upto)
            yield from (((update.stream, update.instance, update.token), list(update.rows)) for update in updates)
    reader.close()


def _fields(row: list[Any]) -> Any:
    """Return the row in its sent form, from the name and fields of the class that parsed it."""
    _, *fields = row
    match fields:
        case [str(tag), [str(name), *values]] if name.startswith("EventsStream"):
            return [tag, values]
    return fields


async def _follow(
    database: Database,
    version: str,
    python: Path,
    dialect: Dialect,
    expected: Mapping[Token, Any],
    restore_positions: Callable[[], None] | None,
) -> tuple[set[str], dict[Token, list[Any]]]:
    """Return the release's streams with a table, and the rows that its classes parsed, by token.

    :param restore_positions: called once the release follows all of its streams.
    """
    received: dict[Token, list[Any]] = {}
    options = "--row-format", ".".join(map(str, parse_release(version) or ()))
    async with (
        run_serve_command(database, dialect, *options) as port,
        _client(python, port) as messages,
        asyncio.timeout(SECONDS),
    ):
        streams = set((await anext(messages))["streams"])
        positions, table_streams = set[str](), streams & ROW_SCHEMAS.keys()
        relevant_count = sum(stream in table_streams for stream, _, _ in expected)
        async for item in messages:
            assert "error" not in item, item
            positions.add(item["stream"])
            if item["rows"]:
                token = (item["stream"], item["instance"], item["token"])
                assert token not in received, "a token arrived twice"
                received[token] = item["rows"]
            if restore_positions and positions >= table_streams:
                await asyncio.to_thread(restore_positions)
                restore_positions = None
            if len(received) >= relevant_count and positions >= table_streams:
                break
    return table_streams, received


@asynccontextmanager
async def _client(python: Path, port: int) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Yield the messages of a client of the release. It follows from the first token, or from its subscription."""
    client = await asyncio.create_subprocess_exec(
        python, "-P", CLIENT, str(port), "synapse.example", stdout=PIPE, limit=1 << 24
    )

    async def messages_of_client() -> AsyncIterator[dict[str, Any]]:
        assert client.stdout
        while line := await client.stdout.readline():
            yield json.loads(line)

    try:
        yield messages_of_client()
    finally:
        with suppress(ProcessLookupError):
            client.terminate()
        # Some releases catch the signal.
        assert await client.wait() in (0, -SIGTERM), "the release's own code failed"
