"""SQL of the role that compresses: its privileges in Synapse's database."""

from typing import Final

from synapse_lakehouse.compressor.postgres.progress_tables import CREATE_STATEMENTS, PRIVILEGES, PROGRESS_TABLES
from synapse_lakehouse.compressor.postgres.session_settings import SESSION_SETTINGS
from synapse_lakehouse.postgres.access.grants import build_role_sql, only_if

_CONNECTIONS: Final = 4


def create_role_sql(role: str, reader: str = "lakehouse") -> str:
    """Return SQL that creates ``role`` (a plain lower-case name) or updates its privileges to the present needs.

    The SQL works in the current database and schema, in one transaction, and can be run again. The role that runs it
    must own Synapse's tables and be allowed to create roles. The role ``reader``, if it exists, may then read the
    progress tables.
    """
    return "\n".join(
        [
            f"-- The role {role} compresses room state; it has no other privileges. Run this again after an upgrade.",
            "BEGIN;",
            *(f"{statement};" for statement in CREATE_STATEMENTS),
            *build_role_sql(role, _CONNECTIONS, SESSION_SETTINGS),
            *(
                only_if(f"to_regclass('{table}') IS NOT NULL", f"GRANT {rights} ON {table} TO {role};")
                for table, rights in PRIVILEGES.items()
            ),
            f"DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{reader}') THEN",
            f"  GRANT SELECT ON {', '.join(PROGRESS_TABLES)} TO {reader};",
            "END IF; END $$;",
            "COMMIT;",
            f"-- Set its password in psql: \\password {role}",
            "",
        ]
    )
