"""The B-tree indexes of a table, as PostgreSQL's catalogs describe them."""

from dataclasses import dataclass, field
from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.postgres.connection import Connection

_MAX_NULLABLE_KEYS: Final = 3

_INDEXES: Final = """
select relname, pg_relation_filenode(oid), greatest(reltuples, 0)::bigint,
  array(select pg_get_indexdef(oid, key, false) from generate_series(1, indnkeyatts) as key),
  array(select format_type(atttypid, atttypmod) from pg_attribute
        where attrelid = oid and attnum <= indnkeyatts order by attnum),
  array(select not coalesce(attnotnull, false) from unnest(indkey) with ordinality as key(number, place)
        left join pg_attribute on attrelid = indrelid and attnum = number where place <= indnkeyatts order by place),
  pg_get_expr(indpred, indrelid),
  array(select attname::text from pg_attribute where attrelid = indrelid and attnum > 0 and (attnum = any(indkey)
        or attnum in (select refobjsubid from pg_depend where classid = 'pg_class'::regclass and objid = pg_class.oid
                      and refclassid = 'pg_class'::regclass and refobjid = indrelid))),
  (select amname from pg_am where pg_am.oid = relam), relkind = 'I',
  indisvalid and indisready and indislive, indexprs is not null,
  not exists (select from unnest(indoption) as option where option <> 0)
  and not exists (select from unnest(indcollation) as id join pg_collation on pg_collation.oid = id
      where not collisdeterministic or coalesce(collcollate, '') not in ('C', 'POSIX')
      and not (collname = 'default' and exists (select from pg_database where datname = current_database()
                                                 and datcollate in ('C', 'POSIX')
                                                 and coalesce(to_jsonb(pg_database) ->> 'datlocprovider', 'c') = 'c')))
from pg_index join pg_class on pg_class.oid = indexrelid where indrelid = to_regclass(%s) order by relname
"""


@dataclass(frozen=True)
class BtreeIndex:
    """A B-tree index of ``table`` that can be checked, see :func:`read_indexes`.

    * ``filenode``: number of the index's file. A rebuilt index has another number.
    * ``entries``: PostgreSQL's estimate.
    * ``keys``: SQL of each key column, in order; ``types``: their types; ``nullable``: whether they may be NULL.
    * ``predicate``: SQL of the condition of a partial index.
    * ``follows_bytes``: whether the entries are in the order of the key's bytes, with NULL last. Then any program can
      sort rows in the order of the index.
    """

    name: str
    table: str
    filenode: int
    entries: int
    keys: tuple[str, ...]
    types: tuple[str, ...]
    nullable: tuple[bool, ...]
    predicate: str | None
    has_expressions: bool
    follows_bytes: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the key columns, for an index without expressions."""
        return tuple(key.strip('"') for key in self.keys)

    @property
    def condition(self) -> sql.SQL:
        """SQL of the predicate; ``true`` for an index of all rows."""
        return sql.SQL(self.predicate or "true")


@dataclass
class TableIndexes:
    """The indexes of a table.

    * ``checkable``: the indexes that can be checked.
    * ``uncovered``: for each other index, the reason why it cannot be checked, by its name.
    * ``filenodes``: for all indexes, the filenode by name.
    """

    checkable: list[BtreeIndex] = field(default_factory=list)
    uncovered: dict[str, str] = field(default_factory=dict)
    filenodes: dict[str, int | None] = field(default_factory=dict)


def read_indexes(connection: Connection, table: Table) -> TableIndexes:
    """Return the indexes of ``table``.

    An index is checkable if it is a valid B-tree of an unpartitioned table, if its columns may be read, and if few of
    them may be NULL.
    """
    readable = {
        column.name for column in table.columns if column.projection is None and not column.has_secrets
    }  # fmt: skip
    indexes = TableIndexes()
    for name, filenode, entries, keys, types, nullable, predicate, columns, *rest in connection.execute(
        _INDEXES, [table.name]
    ):
        method, is_partitioned, is_valid, has_expressions, follows_bytes = rest
        indexes.filenodes[name] = filenode
        if method != "btree":
            indexes.uncovered[name] = f"an index of the type {method}"
        elif is_partitioned:
            indexes.uncovered[name] = "of a partitioned table, where rows of several partitions may have the same ctid"
        elif not is_valid:
            indexes.uncovered[name] = "not valid, so PostgreSQL does not read it"
        elif unread := sorted(set(columns) - readable):
            indexes.uncovered[name] = f"uses columns that are never read: {', '.join(unread)}"
        elif sum(nullable) > _MAX_NULLABLE_KEYS:
            indexes.uncovered[name] = f"has more than {_MAX_NULLABLE_KEYS} columns that may be NULL"
        else:
            indexes.checkable.append(
                BtreeIndex(
                    name, table.name, filenode, entries, tuple(keys), tuple(types), tuple(nullable), predicate,
                    has_expressions, follows_bytes,
                )
            )  # fmt: skip
    return indexes
