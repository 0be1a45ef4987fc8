"""Parts of our path, each alone and on one thread, so that what bounds the whole can be told."""

import shutil
from pathlib import Path

import pyarrow as pa
from adbc_driver_postgresql import dbapi

from bench import lakes, parts
from bench.contenders import Copied
from bench.contenders.copy_limit import thrown_away
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.commits import get_parquet_schema
from synapse_lakehouse.postgres.connection import build_conninfo
from synapse_lakehouse.postgres.rows import read
from synapse_lakehouse.postgres.rows.page_ranges import PAGES_PER_CHUNK
from synapse_lakehouse.postgres.rows.select_sql import build_select


class Stages:
    """Works on one table at a time, without Spark."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self._batches: list[pa.RecordBatch] = []

    def bare(self, table: str) -> Copied:
        """The server sends the columns as it stores them, with no projection."""
        return thrown_away(self.settings, parts.bare(table))

    def sent(self, table: str) -> Copied:
        """The server sends what the lakehouse reads."""
        return thrown_away(self.settings, build_select(lakes.declared(table).table(table)).as_string())

    def decoded(self, table: str) -> Copied:
        """The same, turned into Arrow batches by ADBC and dropped."""
        with self._reader(build_select(lakes.declared(table).table(table)).as_string()) as cursor:
            rows = size = 0
            for batch in cursor.fetch_record_batch():
                rows, size = rows + batch.num_rows, size + batch.nbytes
        return Copied(rows, size)

    def load(self, table: str) -> None:
        """Hold the batches of a table's first chunk, for :meth:`encoded`."""
        declared = lakes.declared(table).table(table)
        with self._reader(build_select(declared, (0, PAGES_PER_CHUNK)).as_string()) as cursor:
            self._batches = list(cursor.fetch_record_batch())
        lake = open_catalog(self.settings)
        tables.ensure_tables(lake, lakes.declared())
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._chunk = read.ReadChunk(
            conninfo="",
            snapshot="",
            statement="",
            schema=get_parquet_schema(lake.load_table(f"bronze.{table}"), [column.name for column in declared.columns]),
            unique_columns=(*declared.primary_key, "json"),
            folder=str(self.folder),
            io_properties={},
        )

    def encoded(self, _: str) -> Copied:
        """Write the held batches as Parquet."""
        written = read._write_chunk(
            self._chunk, pa.RecordBatchReader.from_batches(self._batches[0].schema, self._batches)
        )
        return Copied(written.rows, written.bytes)

    def close(self) -> None:
        """Nothing is held open."""

    def _reader(self, statement: str) -> dbapi.Cursor:
        connection = dbapi.connect(build_conninfo(self.settings))
        cursor = connection.cursor()
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(read.BATCH_BYTES)})
        cursor.execute(statement)
        return cursor
