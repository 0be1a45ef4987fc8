"""Create the lake's own tables: bronze as the catalogue declares it, resolved state, and audit."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import releases, store
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, SCHEMAS
from synapse_lakehouse.iceberg.write import lake_format

ARROW_TYPES: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
}

BRANCHED: Final = {
    "format-version": "2",
    "write.wap.enabled": "true",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties of tables that are written on a run's branch and audited before readers see them."""

_UNBRANCHED: Final = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Many append at the same time, each in its turn; four tries, as by default, are too few where commits are slow.
    "commit.retry.num-retries": "20",
    "commit.retry.max-wait-ms": "1000",
    # Thousands of small commits must not make reading, or the next commit, slower and slower.
    "commit.manifest-merge.enabled": "true",
}

COMMANDS_SCHEMA: Final = pa.schema(
    [
        ("received_at", pa.timestamp("us", tz="UTC")),
        ("source", pa.string()),
        ("dialect", pa.string()),
        ("command", pa.string()),
        ("stream", pa.string()),
        ("instance", pa.string()),
        ("token", pa.int64()),
        ("ordinal", pa.int32()),
        ("previous", pa.int64()),
        ("row", pa.string()),
        ("fields", pa.string()),
    ]
)
"""Columns of what the replication tap heard. ``received_at``: later with every token and command that a tap hears.
``source``: ``redis`` or ``tcp``, or ``database`` for what was not heard and read there. ``token``, ``ordinal``: of
RDATA, the row's token and its place among the token's rows, from 0. ``row``: JSON. ``fields``: of other commands, JSON.
Besides the protocol's own commands there are ``GAP``, what was not heard, and ``TAP``, the positions at the end of a
commit."""

# Each task of a run reads what the tasks before it wrote: few manifests are worth merging them often.
_AUDIT: Final = _UNBRANCHED | {"commit.manifest.min-count-to-merge": "10"}

# Names of scheduled runs begin alike: bounds that are cut off, as by default, do not tell their files apart.
_RUNS_APART: Final = {"write.metadata.metrics.column.run_id": "full"}

# A retried append would drop the requirement that nobody else took the lease meanwhile.
_NEVER_RETRIED: Final = {"commit.retry.num-retries": "0"}


def get_arrow_schema(table: catalogue.Table) -> pa.Schema:
    """Columns of ``bronze.<table>``, all optional: what the source holds is judged, not refused, on the way in."""
    return pa.schema([(column.name, ARROW_TYPES[column.data_type]) for column in table.columns])


def get_metrics_properties(table: catalogue.Table) -> dict[str, str]:
    """Properties that keep the least and greatest values of what people said out of Iceberg's manifests."""
    content = [column.name for column in table.columns if column.holds_content]
    return {f"write.metadata.metrics.column.{name}": "none" for name in content}


def ensure_tables(catalog: Catalog, declared: catalogue.Catalogue) -> None:
    """Create what is missing of the schemas, the audit tables, bronze and resolved state; add columns that they gained.

    Properties that a table does not have yet are set; an operator's own values stay.

    :raises pyiceberg.exceptions.ValidationError: when a column of the catalogue changed its type.
    """
    for schema in SCHEMAS:
        catalog.create_namespace_if_not_exists(schema)
    ensure_audit_tables(catalog)
    ensure_commands_table(catalog)
    _ensure_branched(catalog, "bronze", declared.copied_tables())
    _ensure_branched(catalog, "silver", catalogue.load_state_tables())


def _ensure_branched(catalog: Catalog, schema: str, declared: Iterable[catalogue.Table]) -> None:
    existing = {".".join(name) for name in catalog.list_tables(schema)}
    for table in declared:
        name = f"{schema}.{table.name}"
        _ensure_table(
            catalog, name, get_arrow_schema(table), BRANCHED | get_metrics_properties(table), name in existing
        )


def ensure_audit_tables(catalog: Catalog) -> None:
    """Create what is missing of the audit tables; add columns that they gained."""
    existing = set[str]()
    for schema in {name.partition(".")[0] for name in store.AUDIT_SCHEMAS}:
        catalog.create_namespace_if_not_exists(schema)
        existing |= {".".join(name) for name in catalog.list_tables(schema)}
    for name, columns in store.AUDIT_SCHEMAS.items():
        properties = _AUDIT | (_NEVER_RETRIED if name == "audit.leases" else {})
        if "run_id" in columns.names:
            properties |= _RUNS_APART
        if name == releases.RELEASES_TABLE and name not in existing:
            properties |= lake_format.PROPERTIES
        _ensure_table(catalog, name, columns, properties, name in existing)


def ensure_commands_table(catalog: Catalog) -> None:
    """Create the table of the replication tap, or add columns that it gained."""
    catalog.create_namespace_if_not_exists("bronze")
    _ensure_table(
        catalog, COMMANDS_TABLE, COMMANDS_SCHEMA, _UNBRANCHED, load_table_or_none(catalog, COMMANDS_TABLE) is not None
    )


def _ensure_table(catalog: Catalog, name: str, columns: pa.Schema, properties: dict[str, str], exists: bool) -> None:
    if not exists:
        with suppress(TableAlreadyExistsError):
            catalog.create_table(name, schema=columns, properties=properties)
        return
    table = catalog.load_table(name)
    lake_format.rename_columns(name, table)
    if not set(columns.names) <= set(table.schema().column_names):
        with table.update_schema() as update:
            update.union_by_name(columns)
    # The format's version is no property any more once the table is there.
    known = {*table.properties, "format-version"}
    if missing := {key: value for key, value in properties.items() if key not in known}:
        with table.transaction() as change:
            change.set_properties(missing)


def load_table_or_none(catalog: Catalog, name: str) -> Table | None:
    """The table, or None if it does not exist."""
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None
