"""Copy a table with connectorx to a Parquet file, in batches, so that the table need not fit in memory."""

from pathlib import Path

import connectorx  # type: ignore[import-not-found]  # of the dependency group bench
import pyarrow.parquet as pq

from bench.copy import select_statements
from bench.copy.contenders import CopyResult
from synapse_lakehouse.config.settings import Settings

_BATCH_ROWS = 64_000


class Connectorx:
    """Read the SELECTs of the page ranges in parallel, each on a thread of connectorx."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        folder.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Delete the files."""
        for file in self.folder.iterdir():
            file.unlink()

    def copy(self, table: str) -> CopyResult:
        """Write ``<table>.parquet``."""
        path = self.folder / f"{table}.parquet"
        reader = connectorx.read_sql(
            self.settings.synapse_dsn,
            select_statements.partition_selects(self.settings, table),
            return_type="arrow_stream",
            protocol="binary",
            batch_size=_BATCH_ROWS,
        )
        rows = 0
        with pq.ParquetWriter(
            path, reader.schema, compression="zstd", compression_level=select_statements.COMPRESSION_LEVEL
        ) as writer:
            for batch in reader:
                writer.write_batch(batch)
                rows += batch.num_rows
        return CopyResult(rows, path.stat().st_size)

    def close(self) -> None:
        """Do nothing."""
