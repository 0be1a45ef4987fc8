"""Locks that prevent tables from being rewritten while a snapshot of them is read.

TRUNCATE, pg_repack and a rewriting ALTER TABLE replace the file of a table. Older snapshots see no rows in the new file
(https://www.postgresql.org/docs/current/mvcc-caveats.html), so the table would be copied without rows.
"""

from collections.abc import Collection
from typing import Final

from psycopg import sql

from synapse_lakehouse.postgres.connection import Connection

_REWRITTEN_TABLES: Final = """
with recursive tables as (select name, to_regclass(name) as parent from unnest(%s::text[]) as name),
snapshot_relations(name, relation) as (
  select name, parent::oid from tables
  union all select name, inhrelid from snapshot_relations join pg_inherits on inhparent = relation
    join pg_class on oid = inhrelid and relispartition and not inhdetachpending
),
snapshot_files as (
  select name, array_agg(relation || ':' || coalesce(relfilenode, 0) order by relation) as files
  from snapshot_relations left join pg_class on oid = relation group by name
),
current_files as (
  select name, array_agg(file::oid || ':' || coalesce(pg_relation_filenode(file), 0) order by file::oid) as files
  from tables, lateral (select parent as file union select relid from pg_partition_tree(parent)) as current_relations
  group by name
)
select name from snapshot_files join current_files using (name)
where snapshot_files.files <> current_files.files order by name
"""


def lock_tables(connection: Connection, tables: Collection[str]) -> None:
    """Lock ``tables`` in ACCESS SHARE mode until the transaction ends, so that they cannot be rewritten or dropped.

    A query without rows locks the table and each partition. The right to read one column suffices for such a query, but
    not for LOCK TABLE.
    """
    # With `where false`, PostgreSQL would not lock the partitions.
    locking_queries = [sql.SQL("(select from {} limit 0)").format(sql.Identifier(name)) for name in sorted(tables)]
    if locking_queries:
        connection.execute(sql.SQL(" union all ").join(locking_queries))


def find_rewritten_tables(connection: Connection, tables: Collection[str]) -> list[str]:
    """Return the ``tables`` that were rewritten or recreated since the transaction's snapshot was taken.

    The result includes tables of which a partition was rewritten, attached or detached. A query of pg_class and
    pg_inherits sees the state of the snapshot. PostgreSQL's functions return the present state.
    """
    return [name for (name,) in connection.execute(_REWRITTEN_TABLES.encode(), [sorted(tables)])]
