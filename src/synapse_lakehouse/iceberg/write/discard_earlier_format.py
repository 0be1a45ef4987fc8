"""The format of a lake: the names of its tables and columns. A lake of an earlier format is rebuilt from the source."""

from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from synapse_lakehouse.audit.releases import RELEASES_TABLE, has_current_format
from synapse_lakehouse.iceberg.catalog.catalog import (
    COMMANDS_TABLE,
    COMPRESSION_PLAN_TABLE,
    COMPRESSION_RUNS_TABLE,
    SCHEMAS,
)

_GAPS: Final = "audit.stream_gaps"
RETAINED: Final = frozenset(
    {
        COMMANDS_TABLE,
        "audit.leases",
        "audit.incidents",
        "audit.stream_watch",
        COMPRESSION_PLAN_TABLE,
        COMPRESSION_RUNS_TABLE,
        # These tables contain the state of groups in earlier releases, and the history of state resets.
        "silver.state_changes",
        "gold.state_resets",
    }
)
"""Tables that cannot be rebuilt from the source."""
_RENAMED_COLUMNS: Final = {
    _GAPS: {"witness": "evidence"},
    "audit.incidents": {"said": "description"},
    "audit.stream_watch": {
        "handed_out": "last_allocated_id",
        "unmoved_since": "unchanged_since",
        "vanished": "vanished_writers",
        "furthest_writers": "furthest_positions",
        "furthest_handed_out": "furthest_allocated_id",
    },
    COMPRESSION_RUNS_TABLE: {"groups_left": "groups_skipped"},
}
"""For each retained table: the present name of each column, by the column's name in earlier formats."""
_RENAMED_OUTCOMES: Final = {"partly": "partial", "left": "skipped", "put_back": "restored"}


def is_earlier(catalog: Catalog) -> bool:
    """Return whether the lake has releases of an earlier format."""
    return catalog.table_exists(RELEASES_TABLE) and not has_current_format(
        catalog.load_table(RELEASES_TABLE).properties
    )


def discard(catalog: Catalog, acknowledged_flag: str) -> int:
    """Delete the tables of an earlier format, except acknowledged gaps and tables that cannot be rebuilt.

    The caller holds the lake lease. ``audit.releases`` is deleted last, so that an interrupted discard is repeated.

    :param acknowledged_flag: flag of gaps that an operator has acknowledged.
    :returns: number of acknowledged ranges of stream IDs that the lake retains.
    """
    for schema in SCHEMAS:
        for name in map(".".join, catalog.list_tables(schema)):
            if name in RETAINED | {_GAPS}:
                rename_columns(name, catalog.load_table(name))
            elif name != RELEASES_TABLE:
                catalog.purge_table(name)
    retained = _retain_acknowledged(catalog, acknowledged_flag)
    catalog.purge_table(RELEASES_TABLE)
    return retained


def rename_columns(name: str, table: Table) -> None:
    """Rename columns and outcomes of the retained table ``name`` that have names of an earlier format."""
    renamed = {
        former: column
        for former, column in _RENAMED_COLUMNS.get(name, {}).items()
        if former in table.schema().column_names
    }
    if not renamed:
        return
    with table.transaction() as change:
        with change.update_schema() as update:
            for former, column in renamed.items():
                update.rename_column(former, column)
        if name == COMPRESSION_RUNS_TABLE:
            rows = table.scan().to_arrow()
            outcomes = [_RENAMED_OUTCOMES.get(outcome, outcome) for outcome in rows["outcome"].to_pylist()]
            rows = rows.rename_columns([renamed.get(column, column) for column in rows.column_names])
            change.overwrite(rows.set_column(rows.column_names.index("outcome"), "outcome", pa.array(outcomes)))


def _retain_acknowledged(catalog: Catalog, flag: str) -> int:
    if not catalog.table_exists(_GAPS):
        return 0
    table = catalog.load_table(_GAPS)
    batches = (batch.filter(_has_flag(batch, flag)) for batch in table.scan().to_arrow_batch_reader())
    acknowledged = pa.Table.from_batches(batches, schema=table.schema().as_arrow())
    table.overwrite(acknowledged)
    return len(acknowledged)


def _has_flag(batch: pa.RecordBatch, flag: str) -> pa.Array:
    return pa.array([flag in (flags or ()) for flags in batch.column("flags").to_pylist()], pa.bool_())
