"""The grants that the lakehouse needs in Synapse's database, derived from the catalogue, and their SQL."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from synapse_lakehouse.catalogue import Catalogue, Column, Database, LoadMode
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import SYNAPSE_SCHEMA_SQL, build_session_settings

SYSTEM_COLUMNS: Final = ("ctid", "xmin")
"""System columns that a copy reads: ctid for page ranges, xmin for changed rows. Each needs its own grant."""

SPARE_CONNECTIONS: Final = 4
"""Connections that the role may open in addition to a copy: ``open_run``, ``doctor``, sessions of a killed run."""


@dataclass(frozen=True)
class Grant:
    """The right to SELECT from ``columns`` of a table, or from a sequence. A sequence has no ``columns``.

    * ``evolving``: columns that some releases of Synapse lack.
    * ``is_evolving``: whether some releases of Synapse lack the table or sequence.
    """

    kind: Literal["table", "sequence"]
    name: str
    columns: tuple[str, ...] = ()
    evolving: tuple[str, ...] = ()
    is_evolving: bool = False

    def to_sql(self, role: str) -> str:
        """Return the GRANT statement. The caller quotes ``role`` if necessary."""
        if self.kind == "sequence":
            return f"GRANT SELECT ON SEQUENCE {self.name} TO {role};"
        return f"GRANT SELECT ({', '.join(self.columns)}) ON {self.name} TO {role};"

    def to_script(self, role: str) -> Iterator[str]:
        """Yield statements that grant the right to the part that the database has."""
        always = replace(self, columns=tuple(name for name in self.columns if name not in self.evolving)).to_sql(role)
        exists = f"to_regclass('{self.name}') IS NOT NULL"
        yield only_if(exists, always) if self.is_evolving else always
        for column in self.evolving:
            exists = f"EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('{self.name}')"
            exists += f" AND attname = '{column}')"
            yield only_if(exists, f"GRANT SELECT ({column}) ON {self.name} TO {role};")


def only_if(condition: str, statement: str) -> str:
    """Return SQL that executes a statement under a condition."""
    return f"DO $$ BEGIN IF {condition} THEN {statement} END IF; END $$;"


SCHEMA_VERSION: Final = Grant("table", "schema_version", ("version",))

SCHEMA_TABLES: Final = (
    SCHEMA_VERSION,
    Grant("table", "applied_schema_deltas", ("file",)),
)
"""Tables that Synapse creates in each of its databases, and the columns that show the release."""

COMPAT_VERSION: Final = Grant("table", "schema_compat_version", ("compat_version",))
"""The lakehouse reads this table only in a database of a later release of Synapse than the catalogue knows."""

BACKGROUND_UPDATES: Final = Grant("table", "background_updates", ("depends_on", "ordering", "update_name"))
"""``lakehouse doctor`` reads this table."""


def list_required_grants(catalogue: Catalogue) -> Iterator[Grant]:
    """Yield the grants that a run needs to copy ``catalogue``, and no others."""
    return _list_grants(catalogue, lambda column: not column.only_served)


def list_allowed_grants(catalogue: Catalogue, *, has_secrets: bool) -> Iterator[Grant]:
    """Yield all grants that the role may have.

    These are the grants of :func:`list_required_grants`, the grants that only ``lakehouse replicate serve`` needs, and
    the grants for the checks of ``lakehouse doctor`` and of databases of later releases of Synapse.

    :param has_secrets: whether to include columns with secrets. The lakehouse does not read the rows with the secrets.
    """
    yield from _list_grants(catalogue, lambda column: has_secrets or not column.has_secrets)
    if Database.MAIN not in catalogue.databases:
        yield from (*SCHEMA_TABLES, BACKGROUND_UPDATES)
    yield COMPAT_VERSION


def _list_grants(catalogue: Catalogue, is_read: Callable[[Column], bool]) -> Iterator[Grant]:
    for table in catalogue.tables:
        read = [column for column in table.columns if is_read(column)]
        columns = sorted({name for column in read for name in column.source_columns})
        evolving = sorted({name for column in read if column.is_evolving for name in column.source_columns})
        system = () if table.load is LoadMode.MEASURE else SYSTEM_COLUMNS
        yield Grant("table", table.name, (*columns, *system), tuple(evolving), table.is_evolving)
    for table_name, ids in catalogue.uncatalogued_id_columns().items():
        yield Grant("table", table_name, tuple(sorted(ids)))
    of_evolving = {stream.sequence for stream in catalogue.streams if catalogue.is_evolving(stream)}
    for sequence in catalogue.sequence_names():
        yield Grant("sequence", sequence, is_evolving=sequence in of_evolving)


def build_grants_sql(
    catalogue: Catalogue, settings: Settings, role: str, extra: Iterable[str] = (), *, has_secrets: bool = False
) -> str:
    """Return SQL that creates ``role`` if it is absent, and sets its rights to those that ``catalogue`` needs.

    The SQL is one transaction. Run it again after every upgrade, as the owner of Synapse's tables with CREATEROLE.

    :param role: a plain lower-case name.
    :param extra: further tables. If such a table exists, the role may read all of its columns.
    :param has_secrets: as in :func:`list_allowed_grants`.
    """
    limit = settings.lakehouse_source_connections + SPARE_CONNECTIONS
    return "\n".join(
        [
            f"-- The role {role} may read the columns that the lakehouse copies, and nothing else. "
            "Run this again after upgrading.",
            "BEGIN;",
            *_refuse_earlier_versions(catalogue),
            *build_role_sql(role, limit, build_session_settings(settings)),
            *(
                statement
                for right in list_allowed_grants(catalogue, has_secrets=has_secrets)
                for statement in right.to_script(role)
            ),
            *(only_if(f"to_regclass('{name}') IS NOT NULL", f"GRANT SELECT ON {name} TO {role};") for name in extra),
            "COMMIT;",
            f"-- Set its password in psql, where it is not shown: \\password {role}",
            "",
        ]
    )


def _refuse_earlier_versions(catalogue: Catalogue) -> list[str]:
    """Return the lines of a statement that fails with an explanation if the schema is too old."""
    sentence = catalogue.explain_earlier_version("%").replace("'", "''")
    return [
        "DO $$ DECLARE actual int; BEGIN",
        "  IF to_regclass('schema_version') IS NOT NULL THEN SELECT version INTO actual FROM schema_version; END IF;",
        f"  IF actual < {catalogue.oldest_schema_version} THEN RAISE EXCEPTION '{sentence}', actual; END IF;",
        "END $$;",
    ]


def build_role_sql(role: str, connections: int, session: Mapping[str, str]) -> list[str]:
    """Return statements that create ``role`` if it is absent, and revoke its rights in Synapse's schema.

    :param session: PostgreSQL settings for every session of the role.
    """
    return [
        "DO $$ BEGIN",
        "  IF to_regclass('schema_version') IS NULL THEN",
        "    RAISE EXCEPTION 'The search_path of this session contains no schema with Synapse''s tables.';",
        "  END IF;",
        f"  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN CREATE ROLE {role}; END IF;",
        *(
            f"  EXECUTE format('{statement}', {condition});"
            for statement, condition in (
                (f"GRANT CONNECT ON DATABASE %I TO {role}", "current_database()"),
                (f"GRANT USAGE ON SCHEMA %s TO {role}", SYNAPSE_SCHEMA_SQL),
                (f"REVOKE ALL ON ALL TABLES IN SCHEMA %s FROM {role}", SYNAPSE_SCHEMA_SQL),
                (f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA %s FROM {role}", SYNAPSE_SCHEMA_SQL),
            )
        ),
        "END $$;",
        f"ALTER ROLE {role} LOGIN CONNECTION LIMIT {connections};",
        *(f"ALTER ROLE {role} SET {name} = '{value}';" for name, value in session.items()),
    ]
