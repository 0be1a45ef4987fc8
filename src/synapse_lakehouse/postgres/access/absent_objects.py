"""Tables and columns of the catalogue that a database lacks because of its release of Synapse."""

from collections.abc import Sequence
from typing import Any

import psycopg

from synapse_lakehouse.catalogue import Catalogue

_COLUMNS_SQL = """
select relname::text, array_agg(attname::text) from unnest(%s::text[]) as listed(name)
join pg_class on pg_class.oid = to_regclass(name)
join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped
group by 1
"""

_MAY_READ_DELTAS_SQL = "select has_column_privilege(to_regclass('applied_schema_deltas')::oid, 'file', 'select')"
_DELTAS_SQL = "select file from applied_schema_deltas where file = any(%s)"


def find_absent_objects(catalogue: Catalogue, connection: psycopg.Connection[tuple[Any, ...]]) -> Sequence[str]:
    """Return the tables (``threads``) and columns (``events.depth``) that the connected database legitimately lacks.

    A table or column is legitimately absent if Synapse has not applied the schema change that adds it. A table that was
    added and then dropped is not returned. If the role may not read ``applied_schema_deltas``, nothing is returned.
    """
    if connection.execute(_MAY_READ_DELTAS_SQL).fetchone() != (True,):
        return ()
    columns = dict(connection.execute(_COLUMNS_SQL, [[table.name for table in catalogue.tables]]).fetchall())
    deltas = {file for (file,) in connection.execute(_DELTAS_SQL, [catalogue.list_deltas()])}
    return tuple(catalogue.find_absent(columns, deltas))


def read_source_catalogue(catalogue: Catalogue, connection: psycopg.Connection[tuple[Any, ...]]) -> Catalogue:
    """Return the catalogue without the tables that the connected database lacks (:func:`find_absent_objects`).

    Columns that the database lacks have a constant value.
    """
    return catalogue.restrict_to_source(find_absent_objects(catalogue, connection))
