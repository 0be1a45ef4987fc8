"""Find reasons why the collation of Synapse's database prevents a start of Synapse, or damages indexes."""

from dataclasses import dataclass
from typing import Final

from synapse_lakehouse.postgres.connection import Connection

_COLLATION: Final = """
select
  oid,
  -- PostgreSQL 14 has no providers, and 17 renamed the column of the locale.
  case properties->>'datlocprovider'
    when 'i' then 'ICU ' || coalesce(properties->>'datlocale', properties->>'daticulocale') else datcollate
  end,
  datctype, pg_encoding_to_char(encoding)
from pg_database cross join lateral to_jsonb(pg_database) as properties where datname = current_database()
"""
_COLLATION_VERSIONS: Final = (
    "select datcollversion, pg_database_collation_actual_version(oid) from pg_database where oid = %s"
)
"""PostgreSQL 15 and later record the version of a database's collation."""


@dataclass(frozen=True)
class CollationFault:
    """A fault and its remedy. ``is_damaging``: the order of text has changed since the indexes were built."""

    message: str
    advice: str
    is_damaging: bool


def find_collation_faults(connection: Connection) -> list[CollationFault]:
    """Return the faults of the connected database."""
    row = connection.execute(_COLLATION).fetchone()
    assert row is not None
    oid, collate, ctype, encoding = row
    faults = []
    if (collate, ctype, encoding) != ("C", "C", "UTF8"):
        message = f"The database has collation {collate}, character type {ctype} and encoding {encoding}."
        advice = (
            "Synapse expects C, C and UTF8, and refuses to start otherwise unless allow_unsafe_locale is set. After an "
            "upgrade of the operating system, check the indexes with `lakehouse doctor --deep`."
        )
        faults.append(CollationFault(message, advice, is_damaging=False))
    if connection.info.server_version >= 150_000:
        recorded, actual = connection.execute(_COLLATION_VERSIONS, [oid]).fetchone() or (None, None)
        if recorded != actual:
            message = f"The collation has version {actual}, and the indexes were built with version {recorded}."
            advice = "REINDEX the database, after a check with `lakehouse doctor --deep`."
            faults.append(CollationFault(message, advice, is_damaging=True))
    return faults
