"""Tables with row-level security, which shows a role only some rows or none."""

from collections.abc import Collection

from synapse_lakehouse.postgres.connection import Connection


def find_hidden_rows(connection: Connection, tables: Collection[str]) -> list[str]:
    """Return one message that names the ``tables`` with active row-level security; empty if there are none.

    Sessions of the lakehouse have ``row_security = off``: a query of such a table fails instead of omitting rows,
    whatever the policies are (https://www.postgresql.org/docs/current/ddl-rowsecurity.html). It does not apply to
    superusers, to roles with BYPASSRLS, nor to a table's owner unless it is forced.
    """
    row = connection.execute(
        "select quote_ident(current_user), array(select name from unnest(%s::text[]) as name"
        " join pg_class on pg_class.oid = to_regclass(name) where row_security_active(pg_class.oid) order by name)",
        [sorted(set(tables))],
    ).fetchone()
    assert row is not None
    role, names = row
    if not names:
        return []
    disable = " ".join(f"ALTER TABLE {name} DISABLE ROW LEVEL SECURITY;" for name in names)
    return [
        f"Row-level security hides rows of {', '.join(names)} from the role {role}, so that a copy could lack them. As "
        f"a superuser run: ALTER ROLE {role} BYPASSRLS; or as the owner of the tables, as Synapse uses no row-level "
        f"security: {disable} A policy for the role does not suffice: PostgreSQL does not report whether the policy "
        "hides rows."
    ]
