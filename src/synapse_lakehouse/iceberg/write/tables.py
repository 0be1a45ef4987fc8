"""Create the lake's own tables: bronze as the catalogue declares it, resolved state, and audit."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import releases, store
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, SCHEMAS
from synapse_lakehouse.iceberg.write import discard_earlier_format

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
    "write.delete.mode": "merge-on-read",
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
    # Many processes append at the same time. Iceberg's default of four tries is too few if commits are slow.
    "commit.retry.num-retries": "20",
    "commit.retry.max-wait-ms": "1000",
    # Otherwise thousands of small commits slow down reads and further commits.
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
"""Columns of the replication commands.

``received_at``: increases with every token and command of a tap. ``source``: ``redis`` or ``tcp``, or ``database`` for
rows that the tap missed and read from the database. ``token``, ``ordinal``: for an RDATA row, its token and its index
among the rows of the token, from 0. ``row``: JSON of an RDATA row. ``fields``: JSON of other commands. Besides the
commands of the protocol there are ``GAP`` (tokens that the tap did not receive) and ``TAP`` (the positions after a
commit)."""

# Each task of a run reads the rows of earlier tasks, so frequent merges of manifests pay off.
_AUDIT: Final = _UNBRANCHED | {"commit.manifest.min-count-to-merge": "10"}

# IDs of scheduled runs have the same prefix, so truncated bounds (the default) would not distinguish their files.
_METRICS: Final = "write.metadata.metrics.column."
_WHOLE_RUN_IDS: Final = {f"{_METRICS}run_id": "full"}

# A retried append would lose the condition that no other run took the lease in the meantime.
_NOT_RETRIED: Final = {"commit.retry.num-retries": "0"}


def get_arrow_schema(table: catalogue.Table) -> pa.Schema:
    """Return the columns of ``bronze.<table>``. All are nullable: invalid rows are copied, and then validated."""
    return pa.schema([(column.name, ARROW_TYPES[column.data_type]) for column in table.columns])


def get_metrics_properties(table: catalogue.Table) -> dict[str, str]:
    """Return properties that keep bounds of message content out of Iceberg's manifests."""
    names = [column.name for column in table.columns if column.holds_content]
    return {f"{_METRICS}{name}": "none" for name in names}


def has_content(properties: Mapping[str, str]) -> bool:
    """Return whether a table with these properties has a column with message content."""
    return any(name.startswith(_METRICS) and value == "none" for name, value in properties.items())


def ensure_tables(catalog: Catalog, declared: catalogue.Catalogue) -> None:
    """Create missing schemas, audit tables, bronze tables and tables of resolved state; add missing columns.

    Missing table properties are set; values that an operator set stay.

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
    """Create missing audit tables; add and rename columns of existing ones."""
    existing = set[str]()
    for schema in {name.partition(".")[0] for name in store.AUDIT_SCHEMAS}:
        catalog.create_namespace_if_not_exists(schema)
        existing |= {".".join(name) for name in catalog.list_tables(schema)}
    for name, columns in store.AUDIT_SCHEMAS.items():
        properties = _AUDIT | (_NOT_RETRIED if name == "audit.leases" else {})
        if "run_id" in columns.names:
            properties |= _WHOLE_RUN_IDS
        if name == releases.RELEASES_TABLE and name not in existing:
            properties |= releases.FORMAT_PROPERTIES
        _ensure_table(catalog, name, columns, properties, name in existing)


def ensure_commands_table(catalog: Catalog) -> None:
    """Create the table of the replication tap, or add missing columns."""
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
    discard_earlier_format.rename_columns(name, table)
    if not set(columns.names) <= set(table.schema().column_names):
        with table.update_schema() as update:
            update.union_by_name(columns)
    # An existing table has no property for the version of its format.
    present = {*table.properties, "format-version"}
    if missing := {key: value for key, value in properties.items() if key not in present}:
        with table.transaction() as change:
            change.set_properties(missing)


def load_table_or_none(catalog: Catalog, name: str) -> Table | None:
    """Return the table, or None if it does not exist."""
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None
