"""The rights that the lakehouse needs in Synapse's database, derived from the catalogue, and SQL that grants them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from synapse_lakehouse.catalogue import Catalogue, Column, LoadMode
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import build_session_settings

SYSTEM_COLUMNS: Final = ("ctid", "xmin")
"""Read of every copied table, as its pages are read in ranges and its changes found by their transaction; a grant of
columns does not include them."""

SPARE_CONNECTIONS: Final = 4
"""For what connects beside a copy: opening a run, ``doctor``, the sessions of a killed run until the server notices."""


@dataclass(frozen=True)
class Grant:
    """SELECT on ``columns`` of a table, or on a sequence, which has none."""

    kind: Literal["table", "sequence"]
    name: str
    columns: tuple[str, ...] = ()

    def to_sql(self, role: str) -> str:
        """The statement that gives it; ``role`` is quoted where need be."""
        if self.kind == "sequence":
            return f"GRANT SELECT ON SEQUENCE {self.name} TO {role};"
        return f"GRANT SELECT ({', '.join(self.columns)}) ON {self.name} TO {role};"


def list_required_grants(catalogue: Catalogue) -> Iterator[Grant]:
    """Every right that a run takes, which copies what ``catalogue`` lists, and no other."""
    return _rights(catalogue, lambda column: not column.only_served)


def list_serving_grants(catalogue: Catalogue, *, has_secrets: bool) -> Iterator[Grant]:
    """As :func:`list_required_grants`, with what serving the streams takes.

    :param has_secrets: also on columns that contain secrets, of which the lakehouse reads other rows.
    """
    return _rights(catalogue, lambda column: has_secrets or not column.has_secrets)


def _rights(catalogue: Catalogue, is_read: Callable[[Column], bool]) -> Iterator[Grant]:
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
    """SQL that makes ``role`` (a plain lower-case name), or brings its rights to what ``catalogue`` needs today.

    It works in the current database and schema, in one transaction, and may be run again after every upgrade. Whoever
    runs it owns Synapse's tables and may create roles.

    :param extra: further tables to read, whole, where they exist.
    :param has_secrets: as in :func:`list_serving_grants`.
    """
    limit = settings.lakehouse_source_connections + SPARE_CONNECTIONS
    return "\n".join(
        [
            f"-- The role {role} reads what the lakehouse copies, and nothing else. Run this again after upgrading.",
            "BEGIN;",
            *build_role_sql(role, limit, build_session_settings(settings)),
            *(right.to_sql(role) for right in list_serving_grants(catalogue, has_secrets=has_secrets)),
            *(
                f"DO $$ BEGIN IF to_regclass('{name}') IS NOT NULL THEN"
                f" GRANT SELECT ON {name} TO {role}; END IF; END $$;"
                for name in extra
            ),
            "COMMIT;",
            f"-- Its password, typed and not shown, in psql: \\password {role}",
            "",
        ]
    )


def build_role_sql(role: str, connections: int, session: Mapping[str, str]) -> list[str]:
    """Statements that make ``role``, or take all its rights away, in the current database and schema.

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
