"""A database with Synapse's schema and generated rows, on its own PostgreSQL server."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import typer
from psycopg import sql

from bench.meter import server_pid
from synapse_lakehouse.local.postgres import embedded_postgres, sample

Connection = psycopg.Connection[tuple[Any, ...]]

TABLES = ("event_json", "events", "state_groups_state")
# At scale 1. state_groups_state has five times as many rows.
EVENTS = 2_000_000
STATE_BLOCKS = 5 * EVENTS // 304
EVENTS_PER_ROOM = 500

_SQL = Path(__file__).with_suffix(".sql")
_SLICES = 16
_THREADS = 2
_SERVER_OPTIONS = (
    # No vacuum and no checkpoint may run during a measurement.
    "autovacuum=off",
    "checkpoint_timeout=1d",
    "max_wal_size=16GB",
    "fsync=off",
    "shared_buffers=512MB",
    "maintenance_work_mem=512MB",
)


@dataclass(frozen=True)
class SourceDatabase:
    """A filled database: its server, the server's process ID, its name, and its number of events."""

    server: embedded_postgres.EmbeddedServer
    pid: int
    database: str
    events: int

    @property
    def dsn(self) -> str:
        """libpq URI."""
        return self.server.dsn(self.database)

    @property
    def rooms(self) -> int:
        """Number of rooms."""
        return max(20, self.events // EVENTS_PER_ROOM)

    def connect(self) -> Connection:
        """Connect in autocommit mode."""
        return psycopg.connect(self.dsn, autocommit=True)

    def add(self, table: str, count: int, number: int) -> None:
        """Add ``count`` events to events or event_json.

        :param number: number of earlier calls.
        """
        first = self.events + count * number + 1
        with self.connect() as connection:
            _call(connection, f"add_{table}", first, first + count - 1, self.rooms)

    def change(self, table: str, count: int, number: int) -> None:
        """Change ``count`` rows, spread over events or event_json: events become outliers, and JSON is redacted.

        :param number: number of earlier calls. Each call changes different rows.
        """
        with self.connect() as connection:
            _call(connection, f"change_{table}", 1 + number, self.events, self.events // count)

    def vacuum(self, *tables: str) -> None:
        """Free the space of dead row versions, and checkpoint."""
        with self.connect() as connection:
            names = sql.SQL(", ").join(map(sql.Identifier, tables))
            connection.execute(sql.SQL("vacuum (analyze) {}").format(names))
            connection.execute("checkpoint")


@contextmanager
def filled_database(home: Path, scale: float) -> Iterator[SourceDatabase]:
    """Yield a new copy of the database at ``scale``.

    The template stays in ``home`` until the generator changes. Each benchmark uses a copy, because rows that an earlier
    benchmark added, changed and freed would affect the figures.

    :raises EmbeddedPostgresError: if the server does not start or the sample's schema cannot be restored.
    """
    data = home / "postgres"
    with embedded_postgres.run_server(data, options=_SERVER_OPTIONS) as server:
        pid = server_pid(data)
        events = round(EVENTS * scale)
        template = SourceDatabase(server, pid, f"synapse_bench_{events}_filled", events)
        version = hashlib.sha256(_SQL.read_bytes() + sample.SAMPLE_DUMP.read_bytes()).hexdigest()
        if template.database not in server.databases() or _generator_version(template) != version:
            typer.echo(f"filling a database with {events:,} events")
            _fill(template, scale)
            with template.connect() as connection:
                connection.execute(sql.SQL("comment on schema bench is {}").format(version))
        source = replace(template, database=f"synapse_bench_{events}")
        server.tool("dropdb", "--force", "--if-exists", source.database)
        server.tool("createdb", "--template", template.database, "--strategy", "file_copy", source.database)
        try:
            yield source
        finally:
            server.tool("dropdb", "--force", source.database)


def _generator_version(source: SourceDatabase) -> str | None:
    with source.connect() as connection:
        row = connection.execute("select obj_description(to_regnamespace('bench'), 'pg_namespace')").fetchone()
    return str(row[0]) if row else None


def _fill(source: SourceDatabase, scale: float) -> None:
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
    with ThreadPoolExecutor(_THREADS) as pool:
        futures = [
            pool.submit(_fill_slice, source, procedure, 1 + full * part // _SLICES, full * (part + 1) // _SLICES)
            for procedure, full in (
                ("add_event_json", source.events),
                ("add_state", round(STATE_BLOCKS * scale)),
                ("add_events", source.events),
            )
            for part in range(_SLICES)
        ]
        futures += [pool.submit(_execute, source, definition) for _, definition in indexes]
    for future in futures:
        future.result()
    source.vacuum(*TABLES)


def _fill_slice(source: SourceDatabase, procedure: str, first: int, last: int) -> None:
    with source.connect() as connection:
        _call(connection, procedure, first, last, source.rooms)


def _call(connection: Connection, procedure: str, *arguments: int) -> None:
    values = sql.SQL(", ").join(map(sql.Literal, arguments))
    connection.execute(sql.SQL("call {}({})").format(sql.Identifier("bench", procedure), values))


def _execute(source: SourceDatabase, statement: str) -> None:
    with source.connect() as connection:
        connection.execute(statement)
