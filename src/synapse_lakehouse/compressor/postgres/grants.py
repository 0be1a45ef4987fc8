"""The rights that compressing needs in Synapse's database, and SQL that grants them."""

from typing import Final

from synapse_lakehouse.compressor.postgres.progress_tables import CREATE, RIGHTS, TABLES
from synapse_lakehouse.compressor.postgres.session import SESSION
from synapse_lakehouse.postgres.access.grants import making

_CONNECTIONS: Final = 4


def script(role: str, reader: str = "lakehouse") -> str:
    """SQL that makes ``role`` (a plain lower-case name), or brings its rights to what compressing needs today.

    It works in the current database and schema, in one transaction, and may be run again. Whoever runs it owns
    Synapse's tables and may create roles. The role ``reader``, where it exists, may then read how far
    rooms are compressed.
    """
    return "\n".join(
        [
            f"-- The role {role} compresses room state, and does nothing else. Run this again after upgrading.",
            "BEGIN;",
            *(f"{statement};" for statement in CREATE),
            *making(role, _CONNECTIONS, SESSION),
            *(f"GRANT {rights} ON {table} TO {role};" for table, rights in RIGHTS.items()),
            f"DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{reader}') THEN",
            f"  GRANT SELECT ON {', '.join(TABLES)} TO {reader};",
            "END IF; END $$;",
            "COMMIT;",
            f"-- Its password, typed and not shown, in psql: \\password {role}",
            "",
        ]
    )
