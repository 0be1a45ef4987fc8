"""List the Parquet files below the warehouse, in a folder or on S3, including files that no table refers to."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import duckdb
from duckdb import DuckDBPyConnection

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.iceberg.read.sql_text import quote_literal


@dataclass(frozen=True)
class UnreadableFiles:
    """Files of a table that are not complete Parquet files, so that their content is unknown."""

    table: str
    files: tuple[str, ...]


def list_parquet_files(connection: DuckDBPyConnection, settings: Settings) -> dict[str, list[str]]:
    """Return all Parquet files below the warehouse, by the table (``bronze.events``) in whose folder they are.

    If the catalog has no table for a folder, the key is the name of the folder.

    :raises LakeReadError: when there is no file, for example because the warehouse cannot be listed.
    """
    root = to_path(settings.warehouse)
    folders = {
        to_path(duckdb_reader.read_metadata(connection, entry.location)["location"]): name
        for name, entry in list_catalog_entries(settings).items()
    }
    files: dict[str, list[str]] = {}
    for path in _find_files(connection, root):
        owner = next((folders[parent] for parent in _list_parents(path) if parent in folders), None)
        files.setdefault(owner or ".".join(path[len(root) + 1 :].split("/")[:-1]), []).append(path)
    if not files:
        raise LakeReadError(f"No Parquet file was found in {settings.warehouse}. Correct LAKEHOUSE_WAREHOUSE.")
    return files


def split_readable_files(
    connection: DuckDBPyConnection, settings: Settings, files: Mapping[str, Collection[str]]
) -> tuple[dict[str, list[str]], list[UnreadableFiles]]:
    """Split ``files`` (by table) into readable files, and files without a footer. Writers add the footer last.

    A file that was deleted meanwhile is in neither result.
    """
    readable: dict[str, list[str]] = {}
    broken: dict[str, list[str]] = {}
    for table, paths in files.items():
        for path in paths:
            try:
                connection.execute(f"from parquet_file_metadata({_quote_path(path)})").fetchall()
            except duckdb.Error:
                broken.setdefault(table, []).append(path)
            else:
                readable.setdefault(table, []).append(path)
    existing = set(_find_files(connection, to_path(settings.warehouse))) if broken else set()
    remaining = {table: tuple(path for path in paths if path in existing) for table, paths in broken.items()}
    return readable, [UnreadableFiles(table, paths) for table, paths in remaining.items() if paths]


def parquet_scan_sql(files: Collection[str]) -> str:
    """Return the SQL table function that reads ``files``, with the file name of each row."""
    listed = ", ".join(map(_quote_path, files))
    return f"read_parquet([{listed}], union_by_name => true, filename => true)"


def to_path(location: str) -> str:
    """Return the path of an Iceberg location (``file:/…``, ``file:///…``); a location on S3 stays as it is."""
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith(("file:", "/")) else location


def _find_files(connection: DuckDBPyConnection, root: str) -> list[str]:
    pattern = quote_literal(f"{_escape_pattern(root)}/**/*.parquet")
    return [path for (path,) in connection.execute(f"select file from glob({pattern}) order by file").fetchall()]  # noqa: S608


def _list_parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _quote_path(path: str) -> str:
    return quote_literal(_escape_pattern(path))


def _escape_pattern(path: str) -> str:
    """Return the pattern that matches only ``path``, because DuckDB's functions expect patterns."""
    return re.sub(r"([*?\[])", r"[\1]", path)
