"""Read entries of an index, or rows of its table, by the one type of scan that is allowed."""

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import sql

from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.indexes.index_faults import IndexEntry


@contextmanager
def allow_scans(connection: Connection, settings: str) -> Iterator[None]:
    """Apply ``settings`` (such as ``PLAIN_INDEX_SCANS_ONLY``) while the context lasts, within the open transaction."""
    with connection.transaction(force_rollback=True):
        connection.execute(settings.encode())
        yield


def read_entries(
    connection: Connection, entries: sql.Composed, columns: list[str], condition: sql.Composable
) -> list[IndexEntry]:
    """Return those of the ``entries`` that fulfil ``condition``, with the values of ``columns``."""
    query = sql.SQL(
        "select place, row_id::text, is_own, {columns} from"
        " (select *, row_number() over () as place from ({entries}) as ordered) as numbered where {condition}"
    ).format(columns=sql.SQL(", ").join(map(sql.Identifier, columns)), entries=entries, condition=condition)
    return [IndexEntry(place, row_id, tuple(row), is_own) for place, row_id, is_own, *row in connection.execute(query)]
