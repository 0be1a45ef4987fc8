"""Tables kept from being rewritten while a snapshot of them is read.

TRUNCATE, pg_repack and an ALTER TABLE that rewrites give a table another file, in which older snapshots see no rows
(https://www.postgresql.org/docs/current/mvcc-caveats.html): what is full would be copied as empty.
"""

from collections.abc import Collection

from psycopg import sql

from synapse_lakehouse.postgres.connection import Connection


def lock_tables(connection: Connection, tables: Collection[str]) -> None:
    """Let nobody rewrite or drop ``tables`` until the transaction ends; whoever wants to, waits for it.

    Reads nothing, and needs no more than a right to read a column of each, which LOCK TABLE would not be content with.
    """
    touched = [sql.SQL("(select from {} where false)").format(sql.Identifier(name)) for name in sorted(tables)]
    if touched:
        connection.execute(sql.SQL(" union all ").join(touched))


def find_rewritten_tables(connection: Connection, tables: Collection[str]) -> list[str]:
    """Those of ``tables`` that were rewritten or made anew since the transaction's snapshot was taken.

    A query of pg_class sees what the snapshot saw, while PostgreSQL's functions tell of the present.
    """
    rows = connection.execute(
        "select name from unnest(%s::text[]) name left join pg_class on pg_class.oid = to_regclass(name)"
        " where relfilenode is distinct from pg_relation_filenode(to_regclass(name)) order by name",
        [sorted(tables)],
    )
    return [name for (name,) in rows]
