"""The grants that the lakehouse needs in Synapse's database, derived from the catalogue, and their SQL."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from synapse_lakehouse.catalogue import Catalogue, Column, LoadMode
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import build_session_settings

SYSTEM_COLUMNS: Final = ("ctid", "xmin")
"""Columns that are read of every copied table: ctid for page ranges, xmin for changed rows. A grant of columns does not
include them."""

SPARE_CONNECTIONS: Final = 4
"""Connections besides those of a copy: ``open_run``, ``doctor``, and sessions of a killed run."""


@dataclass(frozen=True)
class Grant:
    """SELECT on ``columns`` of a table, or on a sequence, which has no columns."""

    kind: Literal["table", "sequence"]
    name: str
    columns: tuple[str, ...] = ()

    def to_sql(self, role: str) -> str:
        """Return the GRANT statement; ``role`` is quoted by the caller where necessary."""
        if self.kind == "sequence":
            return f"GRANT SELECT ON SEQUENCE {self.name} TO {role};"
        return f"GRANT SELECT ({', '.join(self.columns)}) ON {self.name} TO {role};"


def list_required_grants(catalogue: Catalogue) -> Iterator[Grant]:
    """Yield the grants that a run needs to copy ``catalogue``, and no others."""
    return _list_grants(catalogue, lambda column: not column.only_served)


def list_serving_grants(catalogue: Catalogue, *, has_secrets: bool) -> Iterator[Grant]:
    """Yield the grants of :func:`list_required_grants`, and those that ``lakehouse replicate serve`` needs.

    :param has_secrets: include columns of which some rows, which the lakehouse does not read, contain secrets.
    """
    return _list_grants(catalogue, lambda column: has_secrets or not column.has_secrets)


def _list_grants(catalogue: Catalogue, is_read: Callable[[Column], bool]) -> Iterator[Grant]:
    for table in catalogue.tables:
        columns = sorted({name for column in table.columns if is_read(column) for name in column.source_columns})
        system = () if table.load is LoadMode.MEASURE else SYSTEM_COLUMNS
        yield Grant("table", table.name, (*columns, *system))
    for table_name, ids in catalogue.uncatalogued_id_columns().items():
        yield Grant("table", table_name, tuple(sorted(ids)))
    for sequence in catalogue.sequence_names():
        yield Grant("sequence", sequence)


def build_grants_sql(
    catalogue: Catalogue, settings: Settings, role: str, extra: Iterable[str] = (), *, has_secrets: bool = False
) -> str:
    """Return SQL that creates ``role`` (a plain lower-case name), or sets its grants to those that ``catalogue`` needs.

    It applies to the current database and schema, in one transaction, and may run again after every upgrade. The role
    that runs it must own Synapse's tables and have CREATEROLE.

    :param extra: further tables to grant as a whole, if they exist.
    :param has_secrets: as in :func:`list_serving_grants`.
    """
    limit = settings.lakehouse_source_connections + SPARE_CONNECTIONS
    return "\n".join(
        [
            f"-- The role {role} may read the columns that the lakehouse copies, and nothing else. "
            "Run this again after upgrading.",
            "BEGIN;",
            *build_role_sql(role, limit, build_session_settings(settings)),
            *(right.to_sql(role) for right in list_serving_grants(catalogue, has_secrets=has_secrets)),
            *(
                f"DO $$ BEGIN IF to_regclass('{name}') IS NOT NULL THEN"
                f" GRANT SELECT ON {name} TO {role}; END IF; END $$;"
                for name in extra
            ),
            "COMMIT;",
            f"-- Set its password in psql, where it is not shown: \\password {role}",
            "",
        ]
    )


def build_role_sql(role: str, connections: int, session: Mapping[str, str]) -> list[str]:
    """Return statements that create ``role``, or revoke all its rights, in the current database and schema.

    :param session: PostgreSQL's settings for its sessions.
    """
    return [
        "DO $$ BEGIN",
        f"  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN CREATE ROLE {role}; END IF;",
        *(
            f"  EXECUTE format('{statement}', {where});"
            for statement, where in (
                (f"GRANT CONNECT ON DATABASE %I TO {role}", "current_database()"),
                (f"GRANT USAGE ON SCHEMA %I TO {role}", "current_schema()"),
                (f"REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM {role}", "current_schema()"),
                (f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA %I FROM {role}", "current_schema()"),
            )
        ),
        "END $$;",
        f"ALTER ROLE {role} LOGIN CONNECTION LIMIT {connections};",
        *(f"ALTER ROLE {role} SET {name} = '{value}';" for name, value in session.items()),
    ]
