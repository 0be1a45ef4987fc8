"""The format of a lake: the names of its tables and columns. A lake of an earlier format is rebuilt from the source."""

from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import releases
from synapse_lakehouse.iceberg.catalog.catalog import (
    COMMANDS_TABLE,
    COMPRESSION_PLAN_TABLE,
    COMPRESSION_RUNS_TABLE,
    SCHEMAS,
)

FORMAT: Final = "2"
"""Goes up when a table or a column is renamed."""

PROPERTIES: Final = {"synapse-lakehouse.format": FORMAT}
"""Properties of a new table ``audit.releases``."""

_GAPS: Final = "audit.stream_gaps"
RETAINED: Final = frozenset(
    {
        COMMANDS_TABLE,
        "audit.leases",
        "audit.incidents",
        "audit.stream_watch",
        COMPRESSION_PLAN_TABLE,
        COMPRESSION_RUNS_TABLE,
    }
)
"""Tables that cannot be rebuilt from the source. No format has renamed their columns."""
_RENAMED_COLUMNS: Final = {"witness": "evidence"}
"""Columns of ``audit.stream_gaps``, by their names in earlier formats."""


def is_earlier(catalog: Catalog) -> bool:
    """Whether the lake has releases of an earlier format."""
    return (
        catalog.table_exists(releases.RELEASES_TABLE)
        and not PROPERTIES.items() <= catalog.load_table(releases.RELEASES_TABLE).properties.items()
    )


def discard(catalog: Catalog, acknowledged_flag: str) -> int:
    """Delete the tables of an earlier format, but for acknowledged gaps and tables that the source cannot give back.

    The caller holds the lake lease. ``audit.releases`` goes last, so that a discard that was interrupted is repeated.

    :param acknowledged_flag: flag of gaps that an operator has acknowledged.
    :return: number of acknowledged ranges of stream IDs that the lake retains.
    """
    for schema in SCHEMAS:
        for name in map(".".join, catalog.list_tables(schema)):
            if name not in RETAINED | {_GAPS, releases.RELEASES_TABLE}:
                catalog.purge_table(name)
    retained = _retain_acknowledged(catalog, acknowledged_flag)
    catalog.purge_table(releases.RELEASES_TABLE)
    return retained


def _retain_acknowledged(catalog: Catalog, flag: str) -> int:
    if not catalog.table_exists(_GAPS):
        return 0
    table = catalog.load_table(_GAPS)
    if renamed := _RENAMED_COLUMNS.keys() & set(table.schema().column_names):
        with table.update_schema() as update:
            for name in renamed:
                update.rename_column(name, _RENAMED_COLUMNS[name])
    batches = (batch.filter(_has_flag(batch, flag)) for batch in table.scan().to_arrow_batch_reader())
    acknowledged = pa.Table.from_batches(batches, schema=table.schema().as_arrow())
    table.overwrite(acknowledged)
    return len(acknowledged)


def _has_flag(batch: pa.RecordBatch, flag: str) -> pa.Array:
    return pa.array([flag in (flags or ()) for flags in batch.column("flags").to_pylist()], pa.bool_())
