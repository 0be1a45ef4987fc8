"""List the Parquet files below the warehouse, including files that no table refers to."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    files: tuple[Path, ...]


def list_parquet_files(connection: DuckDBPyConnection, settings: Settings) -> dict[str, list[Path]]:
    """Return all Parquet files below the warehouse by table (``bronze.events``), that is, by the table's folder.

    If the catalog has no table for a folder, the key is the name of the folder.

    :raises LakeReadError: when the warehouse is not a folder.
    """
    if not settings.warehouse.startswith("file:"):
        raise LakeReadError(f"The warehouse {settings.warehouse} is not a folder. Only folders can be searched.")
    root = Path(settings.warehouse.removeprefix("file://"))
    folders = {
        Path(to_path(duckdb_reader.read_metadata(connection, entry.location)["location"])): name
        for name, entry in list_catalog_entries(settings).items()
    }
    files: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*.parquet")):
        owner = next((folders[parent] for parent in path.parents if parent in folders), None)
        files.setdefault(owner or ".".join(path.relative_to(root).parts[:-1]), []).append(path)
    return files


def split_readable_files(
    connection: DuckDBPyConnection, files: Mapping[str, Collection[Path]]
) -> tuple[dict[str, list[Path]], list[UnreadableFiles]]:
    """Split ``files`` (by table) into readable files, and files without a footer, which a writer adds last.

    A file that was deleted meanwhile is in neither result.
    """
    readable: dict[str, list[Path]] = {}
    unreadable = []
    for table, paths in files.items():
        broken = []
        for path in paths:
            try:
                connection.execute(f"from parquet_file_metadata({quote_literal(str(path))})").fetchall()
            except duckdb.Error:
                if path.exists():
                    broken.append(path)
            else:
                readable.setdefault(table, []).append(path)
        if broken:
            unreadable.append(UnreadableFiles(table, tuple(broken)))
    return readable, unreadable


def parquet_scan_sql(files: Collection[Path]) -> str:
    """Return the SQL table function that reads ``files``, with the file name of each row."""
    listed = ", ".join(quote_literal(str(file)) for file in files)
    return f"read_parquet([{listed}], union_by_name => true, filename => true)"


def to_path(location: str) -> str:
    """Return the path of an Iceberg location (``file:/…``, ``file:///…``)."""
    return "/" + location.removeprefix("file:").lstrip("/")
