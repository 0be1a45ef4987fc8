"""Digests of a lake's content. Lakes with the same rows have the same digests, in any order of the rows.

``python -m tests.upgrade.content HOME HOME`` writes ``sample_content.json`` from two lakes that one version of the
project created from the sample for one data interval. Columns in which the two lakes differ depend on the run (times,
run IDs, Iceberg snapshot IDs). The file lists these columns, and they are not compared. Some are added by hand:
transaction IDs and pages, which depend on how the sample was restored, and texts of ``audit.checks``.
"""

import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypedDict

from duckdb import DuckDBPyConnection

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import quote_table_name
from synapse_lakehouse.local.services import connect_services

CONTENT_FILE = Path(__file__).with_name("sample_content.json")
DATE = "2026-11-20"
IGNORED_TABLES = {"audit.leases"}
"""Tables whose number of rows depends on the duration of a run."""


class Content(TypedDict):
    """Content of a table or view."""

    rows: int
    digest: str
    """Digest of the rows, without the columns that depend on the run."""
    columns: dict[str, str]
    """Digest of each column that does not depend on the run."""
    run_columns: list[str]


def read_content(settings: Settings, run_columns: Mapping[str, Collection[str]] | None = None) -> dict[str, Content]:
    """Return the content of all tables and views of the newest release, by their names with the schema.

    :param run_columns: the columns of each table that depend on the run.
    """
    with connect_services(settings) as connected, duckdb_reader.open_duckdb(connected) as connection:
        names = sorted(list_catalog_entries(connected).keys() - IGNORED_TABLES)
        duckdb_reader.create_views(connection, connected, duckdb_reader.get_release(connection, connected), names)
        return {name: _content(connection, name, set((run_columns or {}).get(name, ()))) for name in names}


def _content(connection: DuckDBPyConnection, table: str, run_columns: set[str]) -> Content:
    relation = connection.sql(f"from {quote_table_name(table)}")
    columns = [column for column in relation.columns if column not in run_columns]
    texts = [f"""coalesce("{column}"::text, 'NULL')""" for column in columns]
    row = "concat_ws(" + ", ".join(["'|'", *texts]) + ")" if texts else "''"
    sums = [f"sum(md5_number_lower({text})::hugeint)::text" for text in (row, *texts)]
    rows, digest, *digests = relation.aggregate(", ".join(["count(*)", *sums])).fetchall()[0]
    return {
        "rows": rows,
        "digest": digest,
        "columns": dict(zip(columns, digests, strict=True)),
        "run_columns": sorted(run_columns),
    }


def read_recorded_content() -> dict[str, Content]:
    """Return the recorded content of the sample's lake."""
    content: dict[str, Content] = json.loads(CONTENT_FILE.read_text(encoding="utf-8"))
    return content


def find_differing_columns(first: Mapping[str, Content], second: Mapping[str, Content]) -> dict[str, list[str]]:
    """Return the columns of each table whose digests differ."""
    return {
        name: [column for column, digest in table["columns"].items() if second[name]["columns"][column] != digest]
        for name, table in first.items()
    }


def main() -> None:
    """Record the content of two lakes."""
    lakes = [Settings(_env_file=None, lakehouse_home=Path(home)) for home in sys.argv[1:3]]
    run_columns = find_differing_columns(*(read_content(lake) for lake in lakes))
    CONTENT_FILE.write_text(json.dumps(read_content(lakes[0], run_columns), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
