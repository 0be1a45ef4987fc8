"""Differences between a Synapse database and the catalogue, found in PostgreSQL's system catalogs.

Every role may read the system catalogs. The lakehouse never reads tables and columns that the catalogue does not list.
``excluded_columns.txt`` lists the columns that are left out on purpose, one table per line. An operator should review
columns that neither the catalogue nor this file lists.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal

import psycopg

from synapse_lakehouse.catalogue import (
    Catalogue,
    Database,
    JsonKeysForTypeProjection,
    ListForTypeProjection,
    Table,
    load_catalogue,
)
from synapse_lakehouse.postgres.connection import SYNAPSE_SCHEMA_SQL

DriftKind = Literal[
    "missing_table", "missing_column", "changed_type", "missing_unique_key", "missing_sequence", "not_a_plain_table"
]

COLUMN_TYPES_SQL = """
select listed.name, to_regclass(listed.name) is not null, attribute.attname,
       format_type(attribute.atttypid, attribute.atttypmod)
from unnest(%s::text[]) as listed(name)
left join pg_attribute as attribute
  on attribute.attrelid = to_regclass(listed.name) and attribute.attnum > 0 and not attribute.attisdropped
"""

TABLE_KINDS_SQL = """
select listed.name, case
         when relkind = 'p' and exists (
           select from pg_partition_tree(pg_class.oid)
           join pg_class as leaf on leaf.oid = relid
           left join pg_am as leaf_am on leaf_am.oid = leaf.relam
           where isleaf and (leaf.relkind <> 'r' or leaf_am.amname <> 'heap')
         ) then 'a partitioned table with a partition that is no plain table'
         when relkind = 'p' then null
         when relkind = 'v' then 'a view'
         when relkind = 'm' then 'a materialized view'
         when relkind = 'f' then 'a foreign table'
         when relkind <> 'r' then 'no table'
         when exists (select from pg_inherits where inhparent = pg_class.oid) then 'a table that others inherit from'
         when amname <> 'heap' then 'a table with the access method ' || amname
       end as kind
from unnest(%s::text[]) as listed(name)
join pg_class on pg_class.oid = to_regclass(listed.name)
left join pg_am on pg_am.oid = relam
"""

UNIQUE_INDEXES_SQL = """
select listed.name,
       array(select attname::text from pg_attribute
             where attrelid = indrelid and attnum = any((indkey::int2[])[0:indnkeyatts - 1])),
       pg_get_expr(indpred, indrelid)
from unnest(%s::text[]) as listed(name)
join pg_index on indrelid = to_regclass(listed.name)
where indisunique and indisvalid and indexprs is null
"""

MISSING_SEQUENCES_SQL = """
select listed.name from unnest(%s::text[]) as listed(name)
where not exists (select from pg_class where oid = to_regclass(listed.name) and relkind = 'S')
"""


TABLE_LAYOUTS_SQL = """
select name, attrelid || ':' || string_agg(attnum::text, ',' order by attname)
  || coalesce(':' || (
    select string_agg(relid::oid::text, ',' order by relid) from pg_partition_tree(attrelid) where level > 0
  ), '')
from unnest(%s::text[], %s::text[]) as listed(name, read)
join pg_attribute on attrelid = to_regclass(name) and attname = read and not attisdropped
group by name, attrelid
"""

ALL_COLUMNS_SQL = f"""
select relname::text, array_agg(attname::text order by attname) from pg_class
join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped
where relkind in ('r', 'p') and not relispartition
  -- the search_path may contain other schemas
  and relnamespace = {SYNAPSE_SCHEMA_SQL}
  -- work tables of the background updates that fill the user directory, for hours on a large server
  and not starts_with(relname::text, '_temp_')
  -- progress of synapse_port_db, and of the compressors
  and relname !~ '^(port_from_sqlite3$|state_compressor_|lakehouse_compressor_)'
  and not exists (select from pg_depend where objid = pg_class.oid and deptype = 'e')
group by 1 order by 1
"""  # noqa: S608 - of a constant


@dataclass(frozen=True)
class SchemaDrift:
    """A difference. ``table``: name of the table, or of a missing sequence. ``message``: text for the operator."""

    table: str
    column: str | None
    kind: DriftKind
    message: str


@dataclass(frozen=True)
class _UniqueIndex:
    columns: frozenset[str]
    only_where: str | None


def find_drift(catalogue: Catalogue, connection: psycopg.Connection[tuple[Any, ...]]) -> list[SchemaDrift]:
    """Return all differences between the connected database and ``catalogue``, in the catalogue's order.

    :param catalogue: as the database's release of Synapse has it (:func:`absent_objects.read_source_catalogue`).
    """
    uncatalogued = catalogue.uncatalogued_id_columns()
    names = [*(table.name for table in catalogue.tables), *uncatalogued]
    types: dict[str, dict[str, str]] = {}
    for name, exists, column, data_type in connection.execute(COLUMN_TYPES_SQL, [names]):
        if exists:
            types.setdefault(name, {})[column] = data_type
    not_plain = dict(connection.execute(TABLE_KINDS_SQL, [[table.name for table in catalogue.tables]]).fetchall())
    indexes: dict[str, list[_UniqueIndex]] = defaultdict(list)
    for name, columns, only_where in connection.execute(UNIQUE_INDEXES_SQL, [names]):
        indexes[name].append(_UniqueIndex(frozenset(columns), only_where))

    drifts: list[SchemaDrift] = []
    for table in catalogue.tables:
        if table.name not in types:
            release = table.since.release if table.since else catalogue.oldest_release
            drifts.append(_drift("missing_table", table.name, release=release))
            continue
        if kind := not_plain[table.name]:
            drifts.append(_drift("not_a_plain_table", table.name, actual=kind))
            continue
        column_drifts = list(_compare_columns(table, types[table.name]))
        drifts += column_drifts
        if table.key_enforced and not column_drifts and not _is_key_unique(table, indexes[table.name]):
            drifts.append(_drift("missing_unique_key", table.name, key=", ".join(table.primary_key)))
    drifts += [
        SchemaDrift(name, column, "missing_column", _MISSING_ID_COLUMN.format(table=name, column=column))
        for name, columns in uncatalogued.items()
        for column in sorted(columns - types.get(name, {}).keys())
    ]
    absent = connection.execute(MISSING_SEQUENCES_SQL, [catalogue.sequence_names()])
    drifts += [_drift("missing_sequence", name) for (name,) in absent]
    return drifts


def find_drifted_tables(catalogue: Catalogue, connection: psycopg.Connection[tuple[Any, ...]]) -> dict[str, str]:
    """Return the tables that cannot be copied as declared, each with a message that lists all its differences."""
    tables = {table.name for table in catalogue.tables}
    messages_by_table: dict[str, list[str]] = defaultdict(list)
    for drift in find_drift(catalogue, connection):
        if drift.table in tables and drift.kind != "missing_unique_key":
            messages_by_table[drift.table].append(drift.message)
    return {table: " ".join(messages) for table, messages in messages_by_table.items()}


def exclude_drifted_tables(
    catalogue: Catalogue, connection: psycopg.Connection[tuple[Any, ...]], *, may_be_partial: bool
) -> Catalogue:
    """Return ``catalogue``, without drifted tables if ``may_be_partial``."""
    return catalogue.without_tables(find_drifted_tables(catalogue, connection)) if may_be_partial else catalogue


def read_table_layouts(catalogue: Catalogue, connection: psycopg.Connection[tuple[Any, ...]]) -> dict[str, str]:
    """Return the layout of each table by its name: its OID, partitions, and the numbers of the columns that are read.

    The layout contains the partitions, because attaching or detaching one changes rows without new row versions.
    """
    reads = sorted(
        {(table.name, name) for table in catalogue.tables for column in table.columns for name in column.source_columns}
    )
    return dict(
        connection.execute(TABLE_LAYOUTS_SQL, [[table for table, _ in reads], [name for _, name in reads]]).fetchall()
    )


def find_unknown_objects(catalogue: Catalogue, connection: psycopg.Connection[tuple[Any, ...]]) -> list[str]:
    """Return tables (``threads``) and columns (``events.depth``) that are new to this version of the lakehouse."""
    listed = read_excluded_columns()
    # If Synapse has several databases, each database also contains, or once contained, tables of the other part.
    has_all = len(catalogue.databases) == len(Database)
    for table in (catalogue if has_all else load_catalogue()).tables:
        listed.setdefault(table.name, set()).update(name for column in table.columns for name in column.source_columns)
    unknown = []
    for name, columns in connection.execute(ALL_COLUMNS_SQL.encode()):
        if name not in listed:
            unknown.append(name)
        else:
            unknown += [f"{name}.{column}" for column in columns if column not in listed[name]]
    return unknown


def read_excluded_columns() -> dict[str, set[str]]:
    """Return, by table, the columns of Synapse that the catalogue leaves out on purpose."""
    lines = (files("synapse_lakehouse") / "postgres" / "excluded_columns.txt").read_text(encoding="utf-8").splitlines()
    return {table: set(columns.split()) for table, _, columns in (line.partition(":") for line in lines)}


def _compare_columns(table: Table, types: dict[str, str]) -> Iterator[SchemaDrift]:
    expected: dict[str, str] = {}
    for column in table.columns:
        expected |= dict.fromkeys(column.source_columns[:1], column.source_type)
        if isinstance(column.projection, JsonKeysForTypeProjection | ListForTypeProjection):
            expected[column.projection.type_column] = "text"
    for name, data_type in expected.items():
        if name not in types:
            yield _drift("missing_column", table.name, name)
        elif types[name] != data_type:
            yield _drift("changed_type", table.name, name, expected=data_type, actual=types[name])


def _is_key_unique(table: Table, indexes: list[_UniqueIndex]) -> bool:
    """Return whether unique indexes cover the key. Partial indexes may cover the rows with NULL in the key."""
    key, nullable = frozenset(table.primary_key), frozenset(table.nullable_key)
    without_nulls = any(index.columns <= key and index.only_where is None for index in indexes)
    with_nulls = all(
        any(index.columns <= key - {column} and index.only_where in (None, f"({column} IS NULL)") for index in indexes)
        for column in nullable
    )
    return without_nulls and with_nulls


def _drift(kind: DriftKind, table: str, column: str | None = None, **details: str) -> SchemaDrift:
    return SchemaDrift(table, column, kind, _MESSAGES[kind].format(table=table, column=column, **details))


_MISSING: Final = (
    "Start Synapse once to finish its upgrade. If a release candidate of Synapse made the change of the schema in "
    "another form, a start does not help: add what is missing, as the final release defines it. If Synapse is newer "
    "than this lakehouse, upgrade the lakehouse. To copy all other tables, set LAKEHOUSE_ON_DRIFT=partial."
)
_MESSAGES: Final[Mapping[DriftKind, str]] = {
    "missing_table": (
        "This database has no table {table}, so the table cannot be copied. Synapse {release} and later have it. If "
        f"another schema contains it, correct the search_path. {_MISSING}"
    ),
    "not_a_plain_table": (
        "{table} is {actual}. The lakehouse can read only plain tables, and partitioned tables whose partitions are "
        "plain tables, because it reads pages and row versions. Replace {table}, or those of its partitions that are "
        "not plain, with plain tables, or set LAKEHOUSE_ON_DRIFT=partial to copy all other tables."
    ),
    "missing_column": f"The table {{table}} has no column {{column}}, so the copy would lack it. {_MISSING}",
    "changed_type": (
        "The column {table}.{column} has the type {actual} instead of {expected}, so its values could be copied "
        "wrongly. Upgrade the lakehouse to a version that supports this version of Synapse."
    ),
    "missing_unique_key": (
        "No valid unique index keeps ({key}) of {table} unique, so the table may contain duplicates. The run's checks "
        "search for them. Wait until Synapse's background updates are finished. If the index is still missing or "
        "invalid, create it again."
    ),
    "missing_sequence": (
        "The sequence {table} is not in this database, so the assigned IDs are unknown. Start Synapse once to finish "
        "its upgrade, or correct the role's search_path."
    ),
}
_MISSING_ID_COLUMN: Final = (
    "This database has no {table}.{column}, so the assigned IDs are unknown. Start Synapse once to finish its "
    "upgrade. If Synapse is newer than this lakehouse, upgrade the lakehouse."
)
