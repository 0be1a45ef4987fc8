"""A table of the source, and its copy on the branch of the run: chunks to read, and commits."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql
from pyiceberg.table import Table as LakeTable
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.iceberg.catalog.catalog import remove_secrets
from synapse_lakehouse.iceberg.write.commits import (
    CommitResult,
    append_files,
    get_parquet_schema,
    replace_content,
    set_or_remove_branch,
)
from synapse_lakehouse.iceberg.write.position_deletes import delete_keys
from synapse_lakehouse.ingest.baseline import build_snapshot_properties
from synapse_lakehouse.ingest.read_plan import ReadPart
from synapse_lakehouse.postgres.connection import Connection, build_conninfo
from synapse_lakehouse.postgres.rows.copy_to_parquet import ReadChunk
from synapse_lakehouse.postgres.rows.heap import Heap
from synapse_lakehouse.postgres.rows.page_ranges import PageRange
from synapse_lakehouse.postgres.rows.select_sql import build_select
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.spark_app import SparkApp


def build_read_chunk(
    app: SparkApp, snapshot: PostgresSnapshot, table: Table, lake: LakeTable, statement: sql.Composed
) -> ReadChunk:
    """Return the task for a worker that writes the rows of ``statement`` to a file of the table ``lake``."""
    return ReadChunk(
        conninfo=build_conninfo(app.settings, table.database, snapshot.server),
        snapshot=snapshot.name,
        statement=statement.as_string(),
        schema=get_parquet_schema(lake, [column.name for column in table.columns]),
        unique_columns=(*(table.primary_key if table.key_enforced else ()), "json"),
        folder=f"{lake.location()}/data",
        io_properties=remove_secrets(app.catalog.properties | app.settings.lakehouse_catalog_properties),
    )


@dataclass(frozen=True)
class CopyTarget:
    """A table: its files in the source (``heap``), and the Iceberg table as it was before the run (``lake``)."""

    app: SparkApp
    connection: Connection
    snapshot: PostgresSnapshot
    table: Table
    heap: Heap
    lake: LakeTable

    @property
    def name(self) -> str:
        """Name of the table in the lake."""
        return f"bronze.{self.table.name}"

    @property
    def main(self) -> Snapshot | None:
        """The Iceberg snapshot of main; None for a table without content."""
        return self.lake.current_snapshot()

    def chunk(self, part: ReadPart) -> ReadChunk:
        """Return the task for a worker that reads ``part``."""
        version = self.connection.info.server_version
        statement = build_select(self.table, part.pages, part.since, part.ctids, version)
        return build_read_chunk(self.app, self.snapshot, self.table, self.lake, statement)

    def set_or_remove_branch(self, snapshot_id: int | None) -> None:
        """Point the branch at an Iceberg snapshot; with None, remove the branch."""
        set_or_remove_branch(*self._target, snapshot_id)

    def replace_content(self, paths: Sequence[str], pages: Sequence[PageRange]) -> CommitResult:
        """Commit ``paths``, which contain ``pages`` of the source, as the whole content of the branch."""
        return replace_content(*self._target, paths, self._properties(pages, is_first=True))

    def append_files(self, paths: Sequence[str], pages: Sequence[PageRange], *, is_first: bool) -> CommitResult:
        """Add ``paths``, which contain ``pages`` of the source, to the branch in one commit.

        :param is_first: whether the branch then contains only ``pages``.
        """
        return append_files(*self._target, paths, self._properties(pages, is_first=is_first))

    def delete_keys(self, keys: DataFrame, spared_files: Sequence[str] = ()) -> tuple[int, int]:
        """Delete the rows with these keys on the branch; return their number and the new snapshot ID.

        :param keys: the primary key columns of the rows.
        :param spared_files: paths of data files whose rows stay.
        """
        return delete_keys(*self._target, keys, spared_files)

    def count_rows(self, snapshot_id: int) -> int:
        """Count the rows of an Iceberg snapshot of the table."""
        return self.app.spark.read.option("versionAsOf", snapshot_id).table(self.name).count()

    def _properties(self, pages: Sequence[PageRange], *, is_first: bool) -> dict[str, str]:
        properties = build_snapshot_properties(self.table, self.heap, self.snapshot, pages, is_first=is_first)
        return properties | {"lakehouse.run": self.app.run.run_id}

    @property
    def _target(self) -> tuple[SparkSession, str, str]:
        return self.app.spark, self.name, self.app.run.branch
