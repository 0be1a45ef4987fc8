"""Would Synapse start again: do its sequences fit its positions and rows, and is none behind where it was?"""

from collections.abc import Mapping
from typing import Final

import psycopg
from duckdb import DuckDBPyConnection
from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Stream
from synapse_lakehouse.cli import positions
from synapse_lakehouse.cli.diagnosis.finding import Finding, Findings, Level
from synapse_lakehouse.lake import duck
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source.connection import Connection
from synapse_lakehouse.source.live import handed_out
from synapse_lakehouse.streams.sequences import Fault, Standing, faults, went_back

_SUBJECT: Final = "sequences"
_ADVICE: Final = "Review, and run with all of Synapse stopped:"


def read(connection: Connection, declared: Catalogue) -> dict[str, Standing]:
    """Every stream's standing in the source by name; those that cannot be read are absent."""
    found = {}
    for stream in declared.streams:
        try:
            with connection.transaction():
                found[stream.name] = _standing(connection, declared, stream)
        except psycopg.Error:
            continue
    return found


def examine(declared: Catalogue, now: Mapping[str, Standing]) -> Findings:
    """Does what Synapse checks at its start hold?"""
    wrong = [fault for stream in declared.streams if stream.name in now for fault in faults(stream, now[stream.name])]
    yield from map(_finding, wrong)
    if now and not wrong:
        message = f"{len(now)} sequences fit their positions and rows, so Synapse would start again"
        yield Finding(Level.OK, _SUBJECT, message)


def compare(
    connection: DuckDBPyConnection, settings: Settings, declared: Catalogue, now: Mapping[str, Standing]
) -> Findings:
    """Is no position behind where the latest release saw it?"""
    known = duck.releases(connection, settings)
    if not known:
        return
    for one in positions.read(connection, settings, known[0]):
        stream = next((stream for stream in declared.streams if stream.name == one.stream), None)
        if stream and one.stream in now:
            fault = went_back(stream, Standing(one.sequence_value or 0, one.writers, {}), now[one.stream])
            if fault:
                yield _finding(fault)


def _finding(fault: Fault) -> Finding:
    return Finding(Level.FAIL, _SUBJECT, fault.message, f"{_ADVICE}\n{fault.repair}")


def _standing(connection: Connection, declared: Catalogue, stream: Stream) -> Standing:
    stored = connection.execute(
        "select instance_name, stream_id from stream_positions where stream_name = %s", [stream.stream_positions]
    ).fetchall()
    furthest = {}
    for table, column in declared.backing(stream.name):
        end = sql.SQL("min" if stream.sign == "negative" else "max")
        row = connection.execute(
            sql.SQL("select {}({}) from {}").format(end, sql.Identifier(column), sql.Identifier(table.name))
        ).fetchone()
        if row and row[0] is not None and (row[0] < 0) is (stream.sign == "negative"):
            furthest[table.name] = int(row[0])
    return Standing(handed_out(connection, stream), {writer: int(position) for writer, position in stored}, furthest)
