"""Which rows of a large model may be others than when it was built, and the rows of other tables that they are made of.

DuckDB looks through the ids of all events in a fraction of the time that Spark takes for it. What it asks stands beside
this file: ``common.sql``, and then the file under the name of the model. Together they make a table ``replaced``, of
the keys of rows that may be others than before, or gone, and tables ``read_<table>`` of the rows that have to be read
to make them; ``read`` has their keys. Of a model that is made whole, its file alone makes the latter.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import find_table_names, iceberg_scan_sql, quote_literal, quote_table_name

_FOLDER: Final = Path(__file__).parent
_FOUND: Final = """
    select table_name, estimated_size from duckdb_tables()
    where table_name in ('replaced', 'read') or starts_with(table_name, 'read_')
"""


def find(
    settings: Settings,
    branch: str,
    model: str,
    changed: Mapping[str, pa.Table],
    former: Mapping[str, int | None],
    newer: Mapping[str, pa.Table],
    most: int,
) -> dict[str, pa.Table] | None:
    """``replaced`` and ``read_<table>``, as ``<model>.sql`` finds them in tables as a reader on ``branch`` does.

    :param changed: columns of rows of other tables that changed since, as they were and as they are; none for a model
        that is made whole.
    :param former: snapshots of tables that the model was built from.
    :param newer: rows of files that came since, as they are; not of all tables.
    :returns: None where more than ``most`` rows of the model, or of another table, are concerned.
    :raises LakeReadError: when the lake cannot be read.
    """
    files = ("common", model) if changed else (model,)
    asked = "".join((_FOLDER / f"{name}.sql").read_text(encoding="utf-8") for name in files)
    with duckdb_reader.open_branch(settings, branch, sorted(find_table_names(asked))) as lake:
        lake.execute("create schema changed; create schema former; create schema newer")
        server = quote_literal(str(settings.synapse_server_name))
        lake.execute(
            "create macro is_local(matrix_id) as"
            f" (instr(matrix_id, ':') > 0 and substr(matrix_id, instr(matrix_id, ':') + 1) = {server})"
        )
        for schema, contents in (("changed", changed), ("newer", newer)):
            for name, rows in contents.items():
                table = f"{schema}.{name.partition('.')[2]}"
                if table in asked:
                    lake.register("rows", rows)
                    lake.execute(f"create table {quote_table_name(table)} as from rows")
                    lake.unregister("rows")
        places = list_catalog_entries(settings)
        for name, snapshot in former.items():
            if snapshot is not None and name in places:
                sql = f"from {iceberg_scan_sql(places[name].location, snapshot)}"
                lake.execute(f"create view former.{quote_table_name(name.partition('.')[2])} as {sql}")
        for statement in lake.extract_statements(asked):
            lake.execute(statement)
            rows = dict(lake.execute(_FOUND).fetchall())
            if max(rows.values(), default=0) > most:
                return None
        return {name: lake.table(name).to_arrow_table() for name in rows if name != "read"}
