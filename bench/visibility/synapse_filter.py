"""Run Synapse's own filter on rooms of the lake, in a database with Synapse's schema."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from bench.visibility.synthetic_bronze import SERVER_NAME, TABLES
from sample import visibility_answers
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.sql_text import quote_literal
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer

_DATABASE: Final = "filter"
_BY_ROOM: Final = "room_id in ({rooms})"
_BY_EVENT: Final = f"event_id in (select event_id from bronze.events where {_BY_ROOM})"  # noqa: S608 - fixed text
_CONDITIONS: Final = {
    "event_to_state_groups": _BY_EVENT,
    "rejections": _BY_EVENT,
    "redactions": _BY_EVENT,
    "state_group_edges": "state_group in (select id from bronze.state_groups where room_id in ({rooms}))",
    "users": "true",
    "ignored_users": "true",
    "erased_users": "true",
}


def record_answers(
    settings: Settings, server: EmbeddedServer, rooms: Sequence[str], recording: Path
) -> tuple[int, float]:
    """Record the answers for all users and events of ``rooms``, peeking or not; return their number and the seconds.

    The seconds cover loading and filtering on one core, for each user all events of a room at once.
    """
    dsn = sample.restore_sample(server, _DATABASE)
    _fill(settings, dsn, rooms)
    seconds = visibility_answers.record(dsn, recording, 0, {"server_name": SERVER_NAME})
    recorded = visibility_answers.load(recording)
    if recorded.errors:
        raise AssertionError(f"Synapse fails on generated events: {next(iter(recorded.errors.items()))}")
    return len(recorded.answers), seconds


def _fill(settings: Settings, dsn: str, rooms: Sequence[str]) -> None:
    """Replace the rooms of the sample's database by ``rooms`` of main in bronze."""
    quoted_rooms = ", ".join(map(quote_literal, rooms))
    with duckdb_reader.open_duckdb(settings) as lake, psycopg.connect(dsn) as source:
        duckdb_reader.create_views(lake, settings, None, [f"bronze.{name}" for name in TABLES])
        source.execute("set session_replication_role = replica")
        source.execute("truncate events, rooms, state_groups, users cascade")
        for name in TABLES:
            table = sql.Identifier(name)
            source.execute(sql.SQL("truncate {} cascade").format(table))
            condition = _CONDITIONS.get(name, _BY_ROOM).format(rooms=quoted_rooms)
            rows = lake.execute(f"select * from bronze.{name} where {condition}").to_arrow_table()  # noqa: S608 - quoted
            if not len(rows):
                continue
            # Columns without generated values get Synapse's defaults.
            rows = rows.select([name for name in rows.column_names if rows[name].null_count < len(rows)])
            columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
            statement = sql.SQL("copy {} ({}) from stdin").format(table, columns)
            with source.cursor().copy(statement) as copy:
                for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                    copy.write_row(row)
        source.commit()
        source.execute("analyze")
