"""Synapse's own filter, asked about rooms of the large lake in a database of Synapse's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from bench.large_bronze import SERVER_NAME, TABLES
from sample import visibility_answers
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.sql_text import quote_literal
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer

_DATABASE: Final = "filter"
_BY_ROOM: Final = "room_id in ({rooms})"
_BY_EVENT: Final = f"event_id in (select event_id from bronze.events where {_BY_ROOM})"  # noqa: S608 - fixed text
_BY: Final = {
    "event_to_state_groups": _BY_EVENT,
    "rejections": _BY_EVENT,
    "redactions": _BY_EVENT,
    "state_group_edges": "state_group in (select id from bronze.state_groups where room_id in ({rooms}))",
    "users": "true",
    "ignored_users": "true",
    "erased_users": "true",
}


def ask(settings: Settings, server: EmbeddedServer, rooms: Sequence[str], recorded_in: Path) -> tuple[int, float]:
    """Answers about all users, events and ways of reading of ``rooms``, kept in ``recorded_in``; seconds they took.

    The seconds are those of loading and filtering, on one core, as Synapse does when it is asked for a room at once.
    """
    dsn = sample.restore_sample(server, _DATABASE)
    _fill(settings, dsn, rooms)
    seconds = visibility_answers.record(dsn, recorded_in, 0, {"server_name": SERVER_NAME})
    recorded = visibility_answers.load(recorded_in)
    if recorded.errors:
        raise AssertionError(f"Synapse fails on what was made up: {next(iter(recorded.errors.items()))}")
    return len(recorded.answers), seconds


def _fill(settings: Settings, dsn: str, rooms: Sequence[str]) -> None:
    """Let the sample's database ``dsn`` hold ``rooms`` of main of bronze instead of its own."""
    named = ", ".join(map(quote_literal, rooms))
    with duckdb_reader.open_duckdb(settings) as lake, psycopg.connect(dsn) as source:
        duckdb_reader.create_views(lake, settings, None, [f"bronze.{name}" for name in TABLES])
        source.execute("set session_replication_role = replica")
        source.execute("truncate events, rooms, state_groups, users cascade")
        for name in TABLES:
            table = sql.Identifier(name)
            source.execute(sql.SQL("truncate {} cascade").format(table))
            wanted = _BY.get(name, _BY_ROOM).format(rooms=named)
            found = lake.execute(f"select * from bronze.{name} where {wanted}").to_arrow_table()  # noqa: S608 - quoted
            if not len(found):
                continue
            # What was not made up has Synapse's own defaults.
            found = found.select([one for one in found.column_names if found[one].null_count < len(found)])
            columns = sql.SQL(", ").join(map(sql.Identifier, found.column_names))
            copying = sql.SQL("copy {} ({}) from stdin").format(table, columns)
            with source.cursor().copy(copying) as copy:
                for row in zip(*(column.to_pylist() for column in found.columns), strict=True):
                    copy.write_row(row)
        source.commit()
        source.execute("analyze")
