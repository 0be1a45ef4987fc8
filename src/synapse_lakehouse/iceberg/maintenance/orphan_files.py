"""List the files of a table, and delete its orphan files: files to which no snapshot and no metadata refers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, iterate_java


class SharedWarehouseError(LakehouseError):
    """The folder of a table contains files of another table. No file was deleted."""

    def __init__(self, metadata: str) -> None:
        super().__init__(
            f"{metadata} belongs to another table than this lake's table in the same folder, so no orphan file was "
            "deleted in that folder. If two lakes share a warehouse, an orphan file of one lake may be data of the "
            "other. Give each lake its own LAKEHOUSE_WAREHOUSE. If there is no other lake, for example because a "
            "table was dropped and created again, delete the named file and clear the task."
        )


@dataclass(frozen=True)
class TableFile:
    """A file under the location of a table."""

    location: str
    bytes: int
    written_ms: int


def list_files(table: Any) -> dict[str, TableFile]:
    """Return all files under the location of an Iceberg (Java) table, by their paths."""
    listed = iterate_java(table.io().listPrefix(table.location()))
    files = (TableFile(str(file.location()), int(file.size()), int(file.createdAtMillis())) for file in listed)
    return {_to_path(file.location): file for file in files}


def delete_orphan_files(spark: SparkSession, table: Any, before: datetime) -> int:
    """Delete orphan files that are older than ``before``; return their number.

    If a referenced file is missing in the list of files, nothing is deleted, because the list is not reliable.

    :raises SharedWarehouseError: when the folder has metadata of another table. The files may belong to that table.
    """
    listed, limit = list_files(table), int(before.timestamp() * 1000)
    old = {path for path, file in listed.items() if file.written_ms < limit}
    table.refresh()
    referenced = {_to_path(location) for location in _referenced_locations(spark, table)}
    folder = _to_path(table.location()) + "/"
    expected = {path for path in referenced if path.startswith(folder)}
    if not expected <= listed.keys() and not expected <= list_files(table).keys():
        return 0
    for path in sorted(listed.keys() - referenced):
        if path.endswith(".metadata.json") and _is_of_another_table(spark, table, listed[path].location):
            raise SharedWarehouseError(listed[path].location)
    for path in old - referenced:
        table.io().deleteFile(listed[path].location)
    return len(old - referenced)


def _is_of_another_table(spark: SparkSession, table: Any, location: str) -> bool:
    try:
        metadata = get_iceberg_class(spark, "TableMetadataParser").read(table.io(), location)
    except Py4JJavaError:
        # The file is incomplete, or was deleted meanwhile.
        return False
    return str(metadata.uuid()) != str(table.uuid())


def _referenced_locations(spark: SparkSession, table: Any) -> Iterator[str]:
    """All files that a snapshot or the metadata of the table refers to."""
    util, manifests, seen = (
        get_iceberg_class(spark, "ReachableFileUtil"),
        get_iceberg_class(spark, "ManifestFiles"),
        set[str](),
    )
    yield from util.metadataFileLocations(table, False)
    yield from util.manifestListLocations(table)
    yield from util.statisticsFilesLocations(table)
    for snapshot in iterate_java(table.snapshots()):
        for manifest in iterate_java(snapshot.allManifests(table.io())):
            if manifest.path() not in seen:
                seen.add(manifest.path())
                yield manifest.path()
                yield from iterate_java(manifests.readPaths(manifest, table.io(), table.specs()))


def _to_path(location: str) -> str:
    """A location without its scheme, because Java writes file:/a and Python file:///a."""
    return re.sub(r"^[a-z0-9+.-]+:/*", "/", location, flags=re.IGNORECASE).rstrip("/")
