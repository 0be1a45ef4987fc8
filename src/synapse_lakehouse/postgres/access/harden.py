"""What PostgreSQL lets every role do in a database beside reading, and SQL that takes it away from ours."""

import textwrap
from dataclasses import dataclass
from typing import Final

# Tables of compressors are not Synapse's own; their owner may be the role that is hardened.
_TEMPORARY: Final = r"""
DO $$ DECLARE synapse name; BEGIN
  IF to_regclass('events') IS NULL THEN RAISE EXCEPTION 'There is no Synapse in this search_path'; END IF;
  FOR synapse IN SELECT DISTINCT rolname FROM pg_class JOIN pg_roles ON pg_roles.oid = relowner
      WHERE relkind = 'r' AND relname NOT LIKE 'state\_compressor\_%'
        AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('events')) LOOP
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO %I', current_database(), synapse);
  END LOOP;
  EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC, {role}', current_database());
END $$;
"""

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
    """Something that every role may do in a new database.

    ``allowed``: SQL that is true where the role of the session may; ``revoke``: the statement that takes it away, in
    which ``{role}`` stands for the role; ``breaks``: what that could break, and how to undo it.
    """

    action: str
    is_allowed_sql: str
    revoke_sql: str
    side_effects: str


def _of_functions(may: str, names: tuple[str, ...], breaks: str) -> PublicRight:
    """A right to execute functions of pg_catalog, whatever arguments they take in this version."""
    quoted = ", ".join(f"'{name}'" for name in names)
    allowed = (
        "exists (select from pg_proc where pronamespace = 'pg_catalog'::regnamespace"
        f" and proname in ({quoted}) and has_function_privilege(oid, 'execute'))"
    )
    return PublicRight(may, allowed, _FUNCTIONS.format(names=quoted), breaks)


PUBLIC_RIGHTS: Final = (
    PublicRight(
        "create temporary tables",
        "has_database_privilege(current_database(), 'temporary')",
        _TEMPORARY,
        "other roles that create temporary tables in this database, such as scripts, bridges or reports. Synapse's own "
        "role, the owner of its tables, is granted the right by name first: its purges create such tables. Undo: GRANT "
        "TEMPORARY ON DATABASE … TO PUBLIC;",
    ),
    _of_functions(
        "create large objects",
        ("lo_creat", "lo_create", "lo_from_bytea"),
        "other roles that store large objects in this database, and a restore of such a dump by a role that is no "
        "superuser. Synapse has none. Undo: GRANT EXECUTE ON FUNCTION lo_creat(integer), lo_create(oid), "
        "lo_from_bytea(oid, bytea) TO PUBLIC;",
    ),
    _of_functions(
        "write messages to the WAL",
        ("pg_logical_emit_message",),
        "tools of logical replication that write such messages by a role that is no superuser, such as heartbeats of "
        "change data capture. Synapse writes none. Undo: GRANT EXECUTE ON FUNCTION pg_logical_emit_message(…) TO "
        "PUBLIC; for each form that \\df lists.",
    ),
)
"""Those that can be taken away without changing another database. What cannot, such as NOTIFY, advisory locks or
lifting one's own timeouts, PostgreSQL lets every role do."""


def build_hardening_sql(role: str) -> str:
    """SQL that takes :data:`PUBLIC_RIGHTS` away from everybody but Synapse's own role, in the current database.

    Each statement stands alone. A superuser runs them, as the functions are PostgreSQL's own.

    :param role: a plain lower-case name; it loses what was granted to it by name, too.
    """
    parts = [
        f"-- Further limits of the role {role}, in this database only. Each statement stands alone: review what it\n"
        "-- could break, and run it as a superuser. The role has to exist.\n"
    ]
    for right in PUBLIC_RIGHTS:
        lines = [
            f"-- Only superusers, and roles with the right by name, may {right.action} then.",
            *_wrapped(f"Could break: {right.side_effects}"),
        ]
        parts.append("\n".join(lines) + right.revoke_sql.format(role=role))
    return "\n".join(parts)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 117, initial_indent="-- ", subsequent_indent="-- ")
