"""Locks that prevent tables from being rewritten while a snapshot of them is read.

TRUNCATE, pg_repack and a rewriting ALTER TABLE replace the file of a table. Older snapshots see no rows in the new file
(https://www.postgresql.org/docs/current/mvcc-caveats.html), so the table would be copied without rows.
"""

from collections.abc import Collection

from psycopg import sql

from synapse_lakehouse.postgres.connection import Connection


def lock_tables(connection: Connection, tables: Collection[str]) -> None:
    """Lock ``tables`` in ACCESS SHARE mode until the transaction ends, so that they cannot be rewritten or dropped.

    A query without rows takes the lock. The right to read one column suffices for it, but not for LOCK TABLE.
    """
    locking_queries = [sql.SQL("(select from {} where false)").format(sql.Identifier(name)) for name in sorted(tables)]
    if locking_queries:
        connection.execute(sql.SQL(" union all ").join(locking_queries))


def find_rewritten_tables(connection: Connection, tables: Collection[str]) -> list[str]:
    """Return the ``tables`` that were rewritten or recreated since the transaction's snapshot was taken.

    A query of pg_class sees the state of the snapshot. PostgreSQL's functions return the present state.
    """
    rows = connection.execute(
        "select name from unnest(%s::text[]) name left join pg_class on pg_class.oid = to_regclass(name)"
        " where relfilenode is distinct from pg_relation_filenode(to_regclass(name)) order by name",
        [sorted(tables)],
    )
    return [name for (name,) in rows]
