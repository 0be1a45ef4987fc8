"""A database of Synapse's schema, filled to a scale, on a PostgreSQL server of the bench's own."""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.meter import server_pid
from synapse_lakehouse.local.postgres import embedded_postgres, sample

Connection = psycopg.Connection[tuple[Any, ...]]

TABLES = ("event_json", "events", "state_groups_state")
# Scale 1: so many events, and state_groups_state has five times as many rows.
EVENTS = 2_000_000
STATE_BLOCKS = 5 * EVENTS // 304
EVENTS_A_ROOM = 500

_SQL = Path(__file__).with_name("generate.sql")
_SLICES = 16
_AT_ONCE = 2
_SERVER_OPTIONS = (
    # Nothing but what is measured runs: there is no vacuum and no checkpoint but those that the bench asks for.
    "autovacuum=off",
    "checkpoint_timeout=1d",
    "max_wal_size=16GB",
    "fsync=off",
    "shared_buffers=512MB",
    "maintenance_work_mem=512MB",
)


@dataclass(frozen=True)
class Source:
    """The filled database: its server and its process id, its name, and how many events it was filled with."""

    server: embedded_postgres.EmbeddedServer
    pid: int
    database: str
    events: int

    @property
    def dsn(self) -> str:
        """Its libpq URI."""
        return self.server.dsn(self.database)

    @property
    def rooms(self) -> int:
        """Rooms that the events are spread over."""
        return max(20, self.events // EVENTS_A_ROOM)

    def connect(self) -> Connection:
        """A connection of its owner, every statement its own transaction."""
        return psycopg.connect(self.dsn, autocommit=True)

    def add(self, table: str, count: int, number: int) -> None:
        """Let ``count`` new events arrive in events or event_json, for the ``number``-th time; from 0."""
        first = self.events + count * number + 1
        with self.connect() as connection:
            _call(connection, f"add_{table}", first, first + count - 1, self.rooms)

    def change(self, table: str, count: int, number: int) -> None:
        """Change ``count`` events all over events or event_json, other ones each time: they become outliers, their JSON
        is redacted."""
        with self.connect() as connection:
            _call(connection, f"change_{table}", 1 + number, self.events, self.events // count)

    def vacuum(self, *tables: str) -> None:
        """Free the space of row versions that nobody sees."""
        with self.connect() as connection:
            names = sql.SQL(", ").join(map(sql.Identifier, tables))
            connection.execute(sql.SQL("vacuum (analyze) {}").format(names))
            connection.execute("checkpoint")


@contextmanager
def filled(home: Path, scale: float, progress: Callable[[str], None]) -> Iterator[Source]:
    """The database at ``scale``, as it was filled: a copy of one kept in ``home``, that is made anew when the generator
    changed. What a bench before added, changed and freed would show in the figures.

    :raises EmbeddedPostgresError: when the server does not start or the sample's schema cannot be restored.
    """
    data = home / "postgres"
    with embedded_postgres.run_server(data, options=_SERVER_OPTIONS) as server:
        pid = server_pid(data)
        events = round(EVENTS * scale)
        kept = Source(server, pid, f"synapse_bench_{events}_filled", events)
        version = hashlib.sha256(_SQL.read_bytes() + sample.SAMPLE_DUMP.read_bytes()).hexdigest()
        if kept.database not in server.databases() or _version(kept) != version:
            progress(f"filling a database with {events:,} events")
            _fill(kept, scale)
            with kept.connect() as connection:
                connection.execute(sql.SQL("comment on schema bench is {}").format(version))
        source = replace(kept, database=f"synapse_bench_{events}")
        server.tool("dropdb", "--force", "--if-exists", source.database)
        server.tool("createdb", "--template", kept.database, "--strategy", "file_copy", source.database)
        try:
            yield source
        finally:
            server.tool("dropdb", "--force", source.database)


def _version(source: Source) -> str | None:
    with source.connect() as connection:
        row = connection.execute("select obj_description(to_regnamespace('bench'), 'pg_namespace')").fetchone()
    return str(row[0]) if row else None


def _fill(source: Source, scale: float) -> None:
    source.server.tool("dropdb", "--force", "--if-exists", source.database)
    sample.restore_sample(source.server, source.database)
    with source.connect() as connection:
        connection.execute("truncate events, event_json, state_groups_state cascade")
        connection.execute("drop schema if exists bench cascade")
        connection.execute(_SQL.read_text())
        indexes = connection.execute(
            "select indexname, indexdef from pg_indexes where tablename = any(%s)"
            " and not exists (select from pg_constraint where conindid = to_regclass(indexname))",
            [list(TABLES)],
        ).fetchall()
        for name, _ in indexes:
            connection.execute(sql.SQL("drop index {}").format(sql.Identifier(name)))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        done = [
            pool.submit(_fill_slice, source, procedure, 1 + whole * part // _SLICES, whole * (part + 1) // _SLICES)
            for procedure, whole in (
                ("add_event_json", source.events),
                ("add_state", round(STATE_BLOCKS * scale)),
                ("add_events", source.events),
            )
            for part in range(_SLICES)
        ]
        done += [pool.submit(_execute, source, definition) for _, definition in indexes]
    for future in done:
        future.result()
    source.vacuum(*TABLES)


def _fill_slice(source: Source, procedure: str, first: int, last: int) -> None:
    with source.connect() as connection:
        _call(connection, procedure, first, last, source.rooms)


def _call(connection: Connection, procedure: str, *arguments: int) -> None:
    values = sql.SQL(", ").join(map(sql.Literal, arguments))
    connection.execute(sql.SQL("call {}({})").format(sql.Identifier("bench", procedure), values))


def _execute(source: Source, statement: str) -> None:
    with source.connect() as connection:
        connection.execute(statement)
