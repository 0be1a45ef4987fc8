"""Find reasons why the collation of Synapse's database prevents a start of Synapse, or damages indexes."""

from dataclasses import dataclass
from typing import Final

from synapse_lakehouse.postgres.connection import Connection

_COLLATION: Final = """
select
  oid, datcollate, datctype, pg_encoding_to_char(encoding),
  -- PostgreSQL 14 has no providers, and 17 renamed the column of the locale.
  case when properties->>'datlocprovider' = 'i' then coalesce(properties->>'datlocale', properties->>'daticulocale') end
from pg_database cross join lateral to_jsonb(pg_database) as properties where datname = current_database()
"""
_COLLATION_VERSIONS: Final = (
    "select datcollversion, pg_database_collation_actual_version(oid) from pg_database where oid = %s"
)
"""PostgreSQL 15 and later record the version of a database's collation."""


@dataclass(frozen=True)
class CollationFault:
    """A fault and its remedy.

    ``needs_repair``: Synapse refuses to start, whatever its settings are, or the order of text has changed since the
    indexes were built.
    """

    message: str
    advice: str
    needs_repair: bool


def find_collation_faults(connection: Connection) -> list[CollationFault]:
    """Return the faults of the connected database.

    Synapse compares encoding, datcollate and datctype. ``allow_unsafe_locale`` permits other values of datcollate and
    datctype, but no other encoding (``synapse.storage.engines.postgres``). An ICU locale does not prevent a start.
    """
    oid, collate, ctype, encoding, _ = _read_collation(connection)
    faults = []
    if encoding != "UTF8":
        message = (
            f"The database has the encoding {encoding}. Synapse refuses to start with an encoding other than UTF8."
        )
        advice = "Create a database with the encoding UTF8 and the locale C, and restore a dump of this one there."
        faults.append(CollationFault(message, advice, needs_repair=True))
    if (collate, ctype) != ("C", "C"):
        message = f"The database has the collation {collate} and the character type {ctype}."
        advice = (
            "Synapse expects C and C, and refuses to start otherwise unless allow_unsafe_locale is set. After an "
            "upgrade of the operating system, check the indexes with `lakehouse doctor --deep`."
        )
        faults.append(CollationFault(message, advice, needs_repair=False))
    if connection.info.server_version >= 150_000:
        recorded, actual = connection.execute(_COLLATION_VERSIONS, [oid]).fetchone() or (None, None)
        if recorded != actual:
            message = f"The collation has version {actual}, and the indexes were built with version {recorded}."
            advice = "REINDEX the database, after a check with `lakehouse doctor --deep`."
            faults.append(CollationFault(message, advice, needs_repair=True))
    return faults


def describe_collation(connection: Connection) -> str:
    """Return the collation of a database without faults, and what an upgrade of the operating system does to it."""
    icu_locale = _read_collation(connection)[-1]
    if icu_locale is None:
        return "C, which no upgrade of the operating system changes"
    return f"C for Synapse, and the ICU locale {icu_locale} for the order of text: an upgrade of ICU may change it"


def _read_collation(connection: Connection) -> tuple[int, str, str, str, str | None]:
    row = connection.execute(_COLLATION).fetchone()
    assert row is not None
    return row
