"""The rights that compressing needs in Synapse's database, and SQL that grants them."""

from typing import Final

from synapse_lakehouse.compressor.postgres.progress_tables import CREATE_STATEMENTS, PRIVILEGES, PROGRESS_TABLES
from synapse_lakehouse.compressor.postgres.session import SESSION_SETTINGS
from synapse_lakehouse.postgres.access.grants import build_role_sql

_CONNECTIONS: Final = 4


def create_role_sql(role: str, reader: str = "lakehouse") -> str:
    """SQL that makes ``role`` (a plain lower-case name), or brings its rights to what compressing needs today.

    It works in the current database and schema, in one transaction, and may be run again. Whoever runs it owns
    Synapse's tables and may create roles. The role ``reader``, where it exists, may then read how far
    rooms are compressed.
    """
    return "\n".join(
        [
            f"-- The role {role} compresses room state, and does nothing else. Run this again after upgrading.",
            "BEGIN;",
            *(f"{statement};" for statement in CREATE_STATEMENTS),
            *build_role_sql(role, _CONNECTIONS, SESSION_SETTINGS),
            *(f"GRANT {rights} ON {table} TO {role};" for table, rights in PRIVILEGES.items()),
            f"DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{reader}') THEN",
            f"  GRANT SELECT ON {', '.join(PROGRESS_TABLES)} TO {reader};",
            "END IF; END $$;",
            "COMMIT;",
            f"-- Its password, typed and not shown, in psql: \\password {role}",
            "",
        ]
    )
