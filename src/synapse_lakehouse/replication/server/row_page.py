"""One page of a stream's rows, read from the database; a row that cannot be sent is skipped and named."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import psycopg
from psycopg.adapt import Loader

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.replication.protocol.row_json import UnsendableRowError, decode_row
from synapse_lakehouse.replication.protocol.row_schemas import Json, Shape
from synapse_lakehouse.replication.protocol.stream_tokens import Source, Update
from synapse_lakehouse.replication.server import sql
from synapse_lakehouse.replication.server.skipped_rows import SkippedRows
from synapse_lakehouse.replication.tap.redact_fields import keep_of

_OF_A_ROW: Final = (psycopg.DataError, psycopg.errors.DataCorrupted, psycopg.errors.ProgramLimitExceeded)
"""Errors of a statement that one row may have caused: by its value, by its damaged storage, by its size."""


class _BytesLoader(Loader):
    """Text as the bytes that PostgreSQL sends: a damaged value may not be UTF-8."""

    def load(self, data: Any) -> bytes:
        return bytes(data)


@dataclass(frozen=True)
class RowForm:
    """How rows are read: ``shapes`` by stream, and columns of tables that the role has no right to read."""

    catalogue: Catalogue
    shapes: Mapping[str, Sequence[Shape]]
    unreadable: frozenset[tuple[str, str]] = frozenset()


def read_page(
    connection: Connection, form: RowForm, source: Source, given: Mapping[str, Any], skipped: SkippedRows
) -> tuple[list[Update], int]:
    """Tokens of ``source`` in the range of ``given``, lowest first, and up to where they reach.

    :param given: parameters of the statements in :mod:`rows`.
    :raises psycopg.Error: when the statements fail for another reason than one row.
    """
    stream, instance = source
    catalogue, given = form.catalogue, dict(given)
    shapes = [shape for shape in form.shapes[stream] if shape.is_announced]
    for shape in shapes:
        row = connection.execute(sql.page_end(catalogue, stream, shape), given).fetchone()
        given["upto"] = min(given["upto"], row[0]) if row else given["upto"]
    sign = -1 if sql.is_negative(catalogue, stream) else 1
    found: list[tuple[int, Any]] = []
    for shape in shapes:
        projections = {
            number: keep_of(catalogue, shape, field)
            for number, field in enumerate(shape.fields)
            if isinstance(field, Json)
        }
        for token, data in _read(connection, form, stream, shape, given):
            try:
                if isinstance(data, UnsendableRowError):
                    raise data
                found.append((token, decode_row(shape, data, projections)))
            except UnsendableRowError as error:
                skipped.add(stream, sign * token, shape.table, error.column, str(error))
    found.sort(key=itemgetter(0))
    updates = [
        Update(stream, instance, token, tuple(row for _, row in rows_of_token))
        for token, rows_of_token in groupby(found, key=itemgetter(0))
    ]
    return updates, given["upto"]


def _read(
    connection: Connection, form: RowForm, stream: str, shape: Shape, given: Mapping[str, Any]
) -> Iterator[tuple[int, bytes | UnsendableRowError]]:
    """Token and fields of each row; token by token where the statement fails on one of them."""
    statement = sql.select(form.catalogue, stream, shape, form.unreadable)
    try:
        yield from _execute(connection, statement, given)
    except _OF_A_ROW:
        connection.rollback()
    else:
        return
    tokens = connection.execute(sql.tokens(form.catalogue, stream, shape), given).fetchall()
    for (token,) in tokens:
        try:
            yield from _execute(connection, statement, {**given, "after": token - 1, "upto": token})
        except _OF_A_ROW as error:
            connection.rollback()
            yield token, UnsendableRowError(None, f"PostgreSQL cannot read it (SQLSTATE {error.sqlstate})")


def _execute(
    connection: Connection, statement: psycopg.sql.Composed, given: Mapping[str, Any]
) -> list[tuple[int, bytes]]:
    with connection.cursor() as cursor:
        cursor.adapters.register_loader("text", _BytesLoader)
        return cursor.execute(statement, given).fetchall()
