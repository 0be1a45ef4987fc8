"""The Parquet files below the warehouse, whether a table refers to them or not."""

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
    """Files of a table that are no whole Parquet files, so that nobody can say what they hold."""

    table: str
    files: tuple[Path, ...]


def list_parquet_files(connection: DuckDBPyConnection, settings: Settings) -> dict[str, list[Path]]:
    """Every Parquet file below the warehouse, by the table (``bronze.events``) in whose folder it lies.

    Files in folders that no table of the catalog has are under the names of these.

    :raises LakeReadError: when the warehouse is not a folder.
    """
    if not settings.warehouse.startswith("file:"):
        raise LakeReadError(f"The warehouse {settings.warehouse} is not a folder, and only folders can be searched.")
    root = Path(settings.warehouse.removeprefix("file://"))
    folders = {
        Path(to_path(duckdb_reader.read_metadata(connection, entry.location)["location"])): name
        for name, entry in list_catalog_entries(settings).items()
    }
    found: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*.parquet")):
        owner = next((folders[one] for one in path.parents if one in folders), None)
        found.setdefault(owner or ".".join(path.relative_to(root).parts[:-1]), []).append(path)
    return found


def split_readable_files(
    connection: DuckDBPyConnection, files: Mapping[str, Collection[Path]]
) -> tuple[dict[str, list[Path]], list[UnreadableFiles]]:
    """Of ``files`` by table, those that have the footer that is written last, and those that have none.

    A file that is gone by now holds nothing, and is among neither.
    """
    whole: dict[str, list[Path]] = {}
    broken = []
    for table, paths in files.items():
        unread = []
        for path in paths:
            try:
                connection.execute(f"from parquet_file_metadata({quote_literal(str(path))})").fetchall()
            except duckdb.Error:
                if path.exists():
                    unread.append(path)
            else:
                whole.setdefault(table, []).append(path)
        if unread:
            broken.append(UnreadableFiles(table, tuple(unread)))
    return whole, broken


def parquet_scan_sql(files: Collection[Path]) -> str:
    """Table function that reads ``files``, with the name of the file of each row."""
    listed = ", ".join(quote_literal(str(file)) for file in files)
    return f"read_parquet([{listed}], union_by_name => true, filename => true)"


def to_path(location: str) -> str:
    """The path that a location of Iceberg (``file:/…``, ``file:///…``) names."""
    return "/" + location.removeprefix("file:").lstrip("/")
