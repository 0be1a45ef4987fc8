"""Rights that PostgreSQL grants to every role (PUBLIC) besides reading, and SQL that revokes them."""

import textwrap
from dataclasses import dataclass
from typing import Final

from synapse_lakehouse.postgres.connection import SYNAPSE_SCHEMA_SQL

# The tables of state compressors are left out, because their owner may be the role that loses the right.
_TEMPORARY: Final = rf"""
DO $$ DECLARE synapse name; BEGIN
  IF to_regclass('schema_version') IS NULL THEN RAISE EXCEPTION 'There is no Synapse in this search_path'; END IF;
  FOR synapse IN SELECT DISTINCT rolname FROM pg_class JOIN pg_roles ON pg_roles.oid = relowner
      WHERE relkind IN ('r', 'p') AND relname NOT LIKE 'state\_compressor\_%'
        AND relnamespace = {SYNAPSE_SCHEMA_SQL} LOOP
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO %I', current_database(), synapse);
  END LOOP;
  EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC, {{role}}', current_database());
END $$;
"""  # noqa: S608 - of a constant

_FUNCTIONS: Final = """
DO $$ DECLARE routine regprocedure; BEGIN
  FOR routine IN SELECT oid FROM pg_proc
      WHERE pronamespace = 'pg_catalog'::regnamespace AND proname IN ({names}) LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC, {{role}}', routine);
  END LOOP;
END $$;
"""


@dataclass(frozen=True)
class PublicRight:
    """A right that every role has in a new database.

    * ``action``: a verb phrase for messages.
    * ``is_allowed_sql``: SQL that is true if the session's role has the right.
    * ``revoke_sql``: the statement that revokes it; ``{role}`` stands for the role.
    * ``side_effects``: what the statement could break, and how to undo it.
    """

    action: str
    is_allowed_sql: str
    revoke_sql: str
    side_effects: str


def _function_right(action: str, names: tuple[str, ...], side_effects: str) -> PublicRight:
    """Return the right to execute functions of pg_catalog, with any arguments."""
    quoted = ", ".join(f"'{name}'" for name in names)
    is_allowed_sql = (
        "exists (select from pg_proc where pronamespace = 'pg_catalog'::regnamespace"
        f" and proname in ({quoted}) and has_function_privilege(oid, 'execute'))"
    )
    return PublicRight(action, is_allowed_sql, _FUNCTIONS.format(names=quoted), side_effects)


PUBLIC_RIGHTS: Final = (
    PublicRight(
        "create temporary tables",
        "has_database_privilege(current_database(), 'temporary')",
        _TEMPORARY,
        "other roles that create temporary tables in this database, such as scripts, bridges or reports. Synapse's "
        "own role (the owner of its tables) first gets the right by name, because its purges create such tables. "
        "Undo: GRANT TEMPORARY ON DATABASE … TO PUBLIC;",
    ),
    _function_right(
        "create large objects",
        ("lo_creat", "lo_create", "lo_from_bytea"),
        "other roles that store large objects in this database, and a restore of their dumps by a role that is not a "
        "superuser. Synapse stores no large objects. Undo: GRANT EXECUTE ON FUNCTION lo_creat(integer), "
        "lo_create(oid), lo_from_bytea(oid, bytea) TO PUBLIC;",
    ),
    _function_right(
        "write messages to the WAL",
        ("pg_logical_emit_message",),
        "tools of logical replication that write such messages with a role that is not a superuser, such as "
        "heartbeats of change data capture. Synapse writes none. Undo: GRANT EXECUTE ON FUNCTION "
        "pg_logical_emit_message(…) TO PUBLIC; for each form that \\df lists.",
    ),
)
"""The rights that can be revoked without an effect on other databases.

PostgreSQL has no way to revoke NOTIFY, advisory locks, or the right of a session to change its timeouts."""


def build_hardening_sql(role: str) -> str:
    """Return SQL that revokes :data:`PUBLIC_RIGHTS` in the current database from PUBLIC and from ``role``.

    Other roles with an explicit grant keep their rights. Synapse's role keeps the right to create temporary tables.
    Each statement is independent of the others. Only a superuser can run them, because a superuser owns the functions.

    :param role: the role of the lakehouse or of its compressor; a plain lower-case name. Rights that were granted
        directly to it are revoked, too.
    """
    parts = [
        f"-- Further limits of the role {role}, in this database only. Each statement is independent: review what it\n"
        "-- could break, and run it as a superuser. The role must exist.\n"
    ]
    for right in PUBLIC_RIGHTS:
        lines = [
            f"-- Afterwards only superusers, and roles with an explicit grant, may {right.action}.",
            *textwrap.wrap(f"Could break: {right.side_effects}", 117, initial_indent="-- ", subsequent_indent="-- "),
        ]
        parts.append("\n".join(lines) + right.revoke_sql.format(role=role))
    return "\n".join(parts)
