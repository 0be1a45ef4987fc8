"""Find tables with active row-level security, which may hide rows from the role."""

from collections.abc import Collection

from synapse_lakehouse.postgres.connection import Connection


def find_hidden_rows(connection: Connection, tables: Collection[str]) -> list[str]:
    """Return one message that names the ``tables`` with active row-level security; empty if there are none.

    Sessions of the lakehouse have ``row_security = off``, so a query of such a table fails instead of omitting rows
    (https://www.postgresql.org/docs/current/ddl-rowsecurity.html). Row-level security is never active for superusers
    and roles with BYPASSRLS. It is active for a table's owner only if the table has FORCE ROW LEVEL SECURITY.
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
        f"Row-level security hides rows of {', '.join(names)} from the role {role}, so a copy could lack them. As a "
        f"superuser run: ALTER ROLE {role} BYPASSRLS; Or disable row-level security, which Synapse does not use, as "
        f"the owner of the tables: {disable} A policy for the role does not suffice, because "
        "PostgreSQL does not report whether a policy hides rows."
    ]
