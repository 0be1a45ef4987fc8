"""``lakehouse query``: run SQL on a release of the lake."""

import re
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Final

import duckdb
import typer
from duckdb import DuckDBPyConnection, StatementType

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import CATALOG_NAME, SCHEMAS, is_unbranched
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import CatalogEntry, list_catalog_entries
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import find_table_names

_BATCH: Final = 2048
_LISTS_TABLES: Final = re.compile(r"\b(show|information_schema|duckdb_(tables|views|columns))\b", re.IGNORECASE)
_UNKNOWN_TABLE: Final = re.compile(r'Table with name "?([\w.]+)"? does not exist')


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT in DuckDB's SQL, or - to read it from standard input.")],
    format: output.FormatOption = output.OutputFormat.TABLE,
    release: lake_session.ReleaseOption = None,
) -> None:
    """Run SQL on a release. Tables are bronze.*, silver.*, gold.* and audit.*; `show all tables` lists them."""
    text = sys.stdin.read() if sql == "-" else sql
    with lake_session.open_lake() as (settings, connection):
        columns, rows = run_query(connection, settings, text, release)
        output.write_rows(columns, rows, format)


def run_query(
    connection: DuckDBPyConnection, settings: Settings, sql: str, number: int | None = None
) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Return the columns and rows of the query ``sql`` at release ``number``; default: the latest.

    A query that reads only tables without branches needs no release.

    :raises LakeReadError: if ``sql`` is not one SELECT, a table does not exist, or DuckDB cannot run it.
    """
    _require_one_select(connection, sql)
    entries = list_catalog_entries(settings)
    names = sorted(name for name in find_table_names(sql) if name.partition(".")[0] in SCHEMAS)
    lists_tables = _LISTS_TABLES.search(sql) is not None
    needs_no_release = not lists_tables and all(is_unbranched(name) for name in names)
    release = None if needs_no_release and number is None else duckdb_reader.get_release(connection, settings, number)
    visible = _visible_tables(entries, release)
    try:
        duckdb_reader.create_views(connection, settings, release, visible if lists_tables else names)
        connection.execute(sql)
    except duckdb.Error as error:
        raise LakeReadError(_explain(error, visible if release else sorted(entries), release)) from error
    return [column[0] for column in connection.description or []], _rows(connection)


def _require_one_select(connection: DuckDBPyConnection, sql: str) -> None:
    try:
        types = [statement.type.name for statement in connection.extract_statements(sql)]
    except duckdb.Error as error:
        raise LakeReadError(_explain(error, [], None)) from error
    if types != [StatementType.SELECT.name]:
        raise LakeReadError(
            "A query must be one SELECT (or FROM, DESCRIBE, SUMMARIZE, SHOW), but this is "
            f"{' and '.join(types) or 'no statement'}. Nothing was run or changed."
        )


def _visible_tables(entries: dict[str, CatalogEntry], release: Release | None) -> list[str]:
    unbranched = [name for name in entries if is_unbranched(name)]
    return sorted({*unbranched, *release.tables, *release.views} if release else unbranched)


def _rows(connection: DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while batch := connection.fetchmany(_BATCH):
        yield from batch


def _explain(error: duckdb.Error, visible: list[str], release: Release | None) -> str:
    reported = str(error).strip()
    if unknown := _UNKNOWN_TABLE.search(reported):
        return f"{_unknown_table(unknown[1].removeprefix(f'{CATALOG_NAME}.'), visible, release)}{_error_line(reported)}"
    if isinstance(error, duckdb.PermissionException):
        return f"A query can read only tables of the lake, no other files. DuckDB reported: {reported}"
    return f"DuckDB cannot run this query. {reported}"


def _unknown_table(name: str, visible: list[str], release: Release | None) -> str:
    same_name = [table for table in visible if table.partition(".")[2] == name.rpartition(".")[2].lower()]
    similar = same_name or get_close_matches(name.lower(), visible, n=3, cutoff=0.6)
    place = f"in release {release.number}" if release else "in the lake"
    question = f" Did you mean {' or '.join(similar)}?" if similar else ""
    return f"There is no table {name} {place}.{question} `lakehouse query 'show all tables'` lists all tables."


def _error_line(reported: str) -> str:
    """Return the lines of DuckDB's message that show the position of the error."""
    _, separator, position = reported.partition("\n\nLINE ")
    return f"\n\nLINE {position}" if separator else ""
