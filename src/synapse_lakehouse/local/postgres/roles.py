"""Create the roles of the embedded PostgreSQL. Each role owns or reads one database, and has no other rights."""

import secrets

import psycopg
from psycopg import sql

from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.local.private_file import read_private_text, write_private_file

_OWNS = "select pg_get_userbyid(datdba) = datname from pg_database where datname = %s"


def ensure_owner(server: EmbeddedServer, database: str) -> str:
    """Return the libpq URI of ``database`` for its owner, a role of the same name. Create both if they are absent."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        owned = connection.execute(_OWNS, [database]).fetchone()
    if owned is None:
        server.create_database(database)
    password, is_new = _read_or_generate_password(server, database)
    if is_new or owned != (True,):
        # The statements run in the superuser's database: in its own database, the role could make the superuser run
        # functions.
        with psycopg.connect(server.dsn()) as connection:
            _create_role(connection, database, password)
            _restrict_connections(connection, database)
            connection.execute(sql.SQL("alter database {0} owner to {0}").format(sql.Identifier(database)))
    if is_new:
        write_private_file(server.password_file(database), password)
    return server.login(database, password, database)


def ensure_reader(server: EmbeddedServer, database: str) -> str:
    """Return the libpq URI of an existing ``database`` for a role of the same name, which may only read its tables."""
    password, is_new = _read_or_generate_password(server, database)
    with psycopg.connect(server.dsn(database)) as connection:
        (may_read,) = connection.execute(
            "select exists (select from pg_roles where rolname = %(role)s"
            " and has_database_privilege(rolname, current_database(), 'connect')"
            " and has_schema_privilege(rolname, 'public', 'usage')"
            " and (select bool_and(has_table_privilege(rolname, oid, 'select')) from pg_class"
            "     where relkind in ('r', 'S') and relnamespace = 'public'::regnamespace))",
            {"role": database},
        ).fetchone() or (False,)
        if is_new or not may_read:
            _create_role(connection, database, password)
            _restrict_connections(connection, database)
            role = sql.Identifier(database)
            connection.execute(sql.SQL("grant connect on database {0} to {0}").format(role))
            connection.execute(sql.SQL("grant select on all tables in schema public to {}").format(role))
            connection.execute(sql.SQL("grant select on all sequences in schema public to {}").format(role))
    if is_new:
        write_private_file(server.password_file(database), password)
    return server.login(database, password, database)


def _create_role(connection: psycopg.Connection[tuple[object, ...]], role: str, password: str) -> None:
    exists = connection.execute("select 1 from pg_roles where rolname = %s", [role]).fetchone()
    statement = "alter role {} login password {}" if exists else "create role {} login password {}"
    connection.execute(sql.SQL(statement).format(sql.Identifier(role), sql.Literal(password)))


def _restrict_connections(connection: psycopg.Connection[tuple[object, ...]], database: str) -> None:
    """Revoke the right of all other roles to connect to ``database`` and to the server's own databases."""
    for name in (database, "postgres", "template1"):
        connection.execute(sql.SQL("revoke all on database {} from public").format(sql.Identifier(name)))


def _read_or_generate_password(server: EmbeddedServer, role: str) -> tuple[str, bool]:
    """Return the role's password, and whether it is new, because its file is absent or damaged.

    The caller writes the file of a new password after the role has it. If the caller is stopped in between, the next
    call generates another password.
    """
    password = read_private_text(server.password_file(role))
    return password or secrets.token_urlsafe(24), not password
