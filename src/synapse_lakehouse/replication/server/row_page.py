"""Read one page of a stream's rows from the database. A row that cannot be sent is skipped and logged."""

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
from synapse_lakehouse.replication.protocol.row_schemas import Json, RowSchema
from synapse_lakehouse.replication.protocol.stream_tokens import Source, Update
from synapse_lakehouse.replication.server import sql
from synapse_lakehouse.replication.server.skipped_rows import SkippedRows
from synapse_lakehouse.replication.tap.redact_fields import field_filter

_ROW_ERRORS: Final = (psycopg.DataError, psycopg.errors.DataCorrupted, psycopg.errors.ProgramLimitExceeded)
"""Errors of a query that one row may have caused: by its value, its damaged storage or its size."""


class _BytesLoader(Loader):
    """Returns text as bytes, because a damaged value may not be UTF-8."""

    def load(self, data: Any) -> bytes:
        return bytes(data)


@dataclass(frozen=True)
class RowFormat:
    """How rows are read: ``schemas`` by stream, and tables and columns that the role may not read."""

    catalogue: Catalogue
    schemas: Mapping[str, Sequence[RowSchema]]
    unreadable: frozenset[tuple[str, str]] = frozenset()


def read_page(
    connection: Connection, row_format: RowFormat, source: Source, parameters: Mapping[str, Any], skipped: SkippedRows
) -> tuple[list[Update], int]:
    """Return the tokens of ``source`` in the range of ``parameters``, lowest first, and the token where the page ends.

    :param parameters: from :func:`sql.build_parameters`.
    :raises psycopg.Error: if a query fails for another reason than the content of one row.
    """
    stream, instance = source
    catalogue, parameters = row_format.catalogue, dict(parameters)
    schemas = [schema for schema in row_format.schemas[stream] if schema.is_announced]
    for schema in schemas:
        row = connection.execute(sql.build_page_end_query(catalogue, stream, schema), parameters).fetchone()
        parameters["upto"] = min(parameters["upto"], row[0]) if row else parameters["upto"]
    sign = -1 if sql.is_negative(catalogue, stream) else 1
    rows: list[tuple[int, Any]] = []
    for schema in schemas:
        filters = {
            number: field_filter(catalogue, schema, field)
            for number, field in enumerate(schema.fields)
            if isinstance(field, Json)
        }
        for token, data in _read_rows(connection, row_format, stream, schema, parameters):
            try:
                if isinstance(data, UnsendableRowError):
                    raise data
                rows.append((token, decode_row(schema, data, filters)))
            except UnsendableRowError as error:
                skipped.add(stream, sign * token, schema.table, error.column, str(error))
    rows.sort(key=itemgetter(0))
    updates = [
        Update(stream, instance, token, tuple(row for _, row in rows_of_token))
        for token, rows_of_token in groupby(rows, key=itemgetter(0))
    ]
    return updates, parameters["upto"]


def _read_rows(
    connection: Connection, row_format: RowFormat, stream: str, schema: RowSchema, parameters: Mapping[str, Any]
) -> Iterator[tuple[int, bytes | UnsendableRowError]]:
    """Yield token and fields of each row. After an error of one row, read token by token."""
    query = sql.build_row_query(row_format.catalogue, stream, schema, row_format.unreadable)
    try:
        yield from _execute(connection, query, parameters)
    except _ROW_ERRORS:
        connection.rollback()
    else:
        return
    tokens = connection.execute(sql.build_token_query(row_format.catalogue, stream, schema), parameters).fetchall()
    for (token,) in tokens:
        try:
            yield from _execute(connection, query, {**parameters, "after": token - 1, "upto": token})
        except _ROW_ERRORS as error:
            connection.rollback()
            yield token, UnsendableRowError(None, f"PostgreSQL cannot read it (SQLSTATE {error.sqlstate})")


def _execute(
    connection: Connection, query: psycopg.sql.Composed, parameters: Mapping[str, Any]
) -> list[tuple[int, bytes]]:
    with connection.cursor() as cursor:
        cursor.adapters.register_loader("text", _BytesLoader)
        return cursor.execute(query, parameters).fetchall()
