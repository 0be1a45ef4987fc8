"""Checks of Synapse's database before a copy: schema version, drift, grants, row-level security, server name."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Final

from synapse_lakehouse.catalogue import Catalogue, Database
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.absent_objects import find_absent_objects
from synapse_lakehouse.postgres.access.grants import COMPAT_VERSION, SCHEMA_TABLES, Grant, list_required_grants
from synapse_lakehouse.postgres.access.row_security import find_hidden_rows
from synapse_lakehouse.postgres.access.schema_drift import exclude_drifted_tables, find_drift
from synapse_lakehouse.postgres.access.state_database import (
    can_compare,
    explain_foreign_state,
    explain_same_database,
)
from synapse_lakehouse.postgres.connection import Connection, connect, has_table, split_by_database
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)

_TABLES: Final = {
    Database.MAIN: ("events",),
    Database.STATE: ("state_groups", "state_group_edges", "state_groups_state"),
}
"""Tables by which a database of Synapse is recognized."""
_FOREIGN_USER_SQL: Final = {
    "users": (
        "select name from users"
        " where not exists (select from users where substr(name, strpos(name, ':') + 1) = %s) limit 1"
    ),
    "local_current_membership": (
        "select user_id from local_current_membership where not exists"
        " (select from local_current_membership where substr(user_id, strpos(user_id, ':') + 1) = %s) limit 1"
    ),
}
"""By table of local users: a query that returns one user if no user in the table belongs to the given server."""


@dataclass(frozen=True)
class SourceSchema:
    """The schema of a database of Synapse.

    * ``version``: Synapse's SCHEMA_VERSION.
    * ``absent_objects``: tables and columns of the catalogue that this release lacks.
    * ``catalogue``: the tables that can be copied.
    """

    version: int
    absent_objects: Sequence[str]
    catalogue: Catalogue


def check_source(settings: Settings, declared: Catalogue) -> list[SourceSchema]:
    """Check that Synapse's databases can be copied completely and belong together; return their schemas, main first.

    :raises SourceError: as :func:`check_source_database`, for the first database with a problem; and as
        :func:`check_state_database`.
    """
    parts = split_by_database(settings, declared)
    name, may_be_partial = str(settings.synapse_server_name), settings.allows_partial_copy
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(settings, part.databases[0])) for part in parts]
        schemas = [
            check_source_database(connection, part, name, may_be_partial=may_be_partial)
            for connection, part in zip(connections, parts, strict=True)
        ]
        if len(parts) > 1:
            check_state_database(connections, [schema.catalogue for schema in schemas])
    return schemas


def check_state_database(connections: Sequence[Connection], catalogues: Sequence[Catalogue]) -> None:
    """Compare the database of SYNAPSE_STATE_DSN with main, unless a table of the comparison cannot be copied.

    :param connections: a connection to main, and one to the state database.
    :param catalogues: the tables of main, and those of the state database, that can be copied.
    :raises SourceError: when the databases belong to different homeservers, or are the same database.
    """
    main, state = connections
    if problem := explain_same_database(main, state):
        raise SourceError(problem)
    if can_compare(*catalogues) and (problem := explain_foreign_state(main, state, "SYNAPSE_STATE_DSN")):
        raise SourceError(problem)


def check_source_database(
    connection: Connection, catalogue: Catalogue, server_name: str, *, may_be_partial: bool = False
) -> SourceSchema:
    """Check that the database can be copied completely, and return its schema.

    :param may_be_partial: whether to ignore tables that differ from the catalogue, so that the others can be copied.
    :raises SourceError: when the version is not supported, or with one line for each problem. The check ends with the
        first of these groups that has a problem: differences from the catalogue; missing grants and hidden rows; the
        server name.
    """
    version = require_supported_version(connection, catalogue)
    absent = find_absent_objects(catalogue, connection)
    catalogue = catalogue.restrict_to_source(absent)
    catalogue = exclude_drifted_tables(catalogue, connection, may_be_partial=may_be_partial)
    problems = [drift.message for drift in find_drift(catalogue, connection) if drift.kind != "missing_unique_key"]
    problems = problems or [*find_missing_grants(connection, catalogue), *check_row_security(connection, catalogue)]
    problems = problems or check_server_name(connection, catalogue, server_name)
    if problems:
        raise SourceError("\n".join(problems))
    return SourceSchema(version, absent, catalogue)


def require_supported_version(
    connection: Connection, catalogue: Catalogue, grants: Sequence[Grant] = SCHEMA_TABLES
) -> int:
    """Return the schema version of the database. If the catalogue has an earlier version, log a warning once.

    :param grants: as in :func:`read_schema_version`.
    :raises SourceError: when the version is not supported, or cannot be read.
    """
    version = read_schema_version(connection, catalogue.databases, grants)
    if problem := explain_unsupported_version(connection, catalogue, version):
        raise SourceError(problem)
    if warning := catalogue.explain_later_version(version):
        _warn_once(warning)
    return version


@cache
def _warn_once(warning: str) -> None:
    log.warning("%s", warning)


def explain_unsupported_version(connection: Connection, catalogue: Catalogue, version: int) -> str | None:
    """Return why a database with this schema version cannot be copied, in one sentence; None if it can be copied.

    A later version than the catalogue's can be copied if Synapse declares it compatible and nothing is missing.

    :raises SourceError: when the version is later, and the role may not read ``schema_compat_version``.
    """
    newest = catalogue.newest_schema_version
    if version < catalogue.oldest_schema_version:
        return catalogue.explain_earlier_version(version)
    if version <= newest:
        return None
    if problems := explain_missing_grants(connection, [COMPAT_VERSION]):
        raise SourceError("\n".join(problems))
    row = connection.execute("select compat_version from schema_compat_version").fetchone()
    if row is None or row[0] > newest:
        reason = f"Synapse declares this schema incompatible with version {newest}"
    else:
        drifts = [drift for drift in find_drift(catalogue, connection) if drift.kind != "missing_unique_key"]
        names = ", ".join(drift.table + (f".{drift.column}" if drift.column else "") for drift in drifts)
        reason = f"this schema lacks or changes {names}"
        if not drifts:
            return None
    return (
        f"This version of the lakehouse cannot completely copy a database with Synapse's schema version {version}, "
        f"because {reason}: upgrade the lakehouse (next time, before you upgrade Synapse)."
    )


def read_schema_version(
    connection: Connection, databases: Sequence[Database], grants: Sequence[Grant] = SCHEMA_TABLES
) -> int:
    """Return the SCHEMA_VERSION that Synapse stored in the database.

    :param databases: the parts, main or state, whose tables the database must have.
    :param grants: the tables that the role must be able to read, among them ``schema_version``.
    :raises SourceError: when the database lacks such a table, the role may not read one, or there is no version.
    """
    rows = connection.execute(
        "select name, to_regclass(name) is not null, current_database() from unnest(%s::text[]) as name",
        [[*(grant.name for grant in SCHEMA_TABLES), *(name for names in _TABLES.values() for name in names)]],
    ).fetchall()
    if problem := _explain_wrong_database({name: exists for name, exists, _ in rows}, rows[0][2], databases):
        raise SourceError(problem)
    if problems := explain_missing_grants(connection, grants) or find_hidden_rows(
        connection, [grant.name for grant in grants]
    ):
        raise SourceError("\n".join(problems))
    row = connection.execute("select version from schema_version").fetchone()
    if row is None:
        raise SourceError(
            "The table schema_version is empty: Synapse did not finish the setup of this database. Start Synapse once."
        )
    return int(row[0])


def check_row_security(connection: Connection, catalogue: Catalogue) -> list[str]:
    """Return a message if row-level security hides rows that the copy needs."""
    return find_hidden_rows(
        connection, [grant.name for grant in list_required_grants(catalogue) if grant.kind == "table"]
    )


def find_missing_grants(connection: Connection, catalogue: Catalogue) -> list[str]:
    """Return a message for each table or sequence that the role may not read, with the GRANT statement."""
    return explain_missing_grants(connection, list_required_grants(catalogue))


def explain_missing_grants(connection: Connection, grants: Iterable[Grant]) -> list[str]:
    """Return a message for each of ``grants`` that the role lacks, with the GRANT statement."""
    row = connection.execute("select quote_ident(current_user)").fetchone()
    role = str(row[0]) if row else "?"
    return [
        f"The role {role} may not read {grant.name}{columns}. As the owner of the database run: {grant.to_sql(role)}"
        for grant in grants
        if (columns := _find_unreadable_columns(connection, grant)) is not None
    ]


def check_server_name(connection: Connection, catalogue: Catalogue, server_name: str) -> list[str]:
    """Return a message if no local user of the database belongs to ``server_name``.

    A single user of the server suffices. Synapse also checks only one account when it starts
    (``synapse.storage.databases.main.check_database_before_upgrade``), so accounts of other servers may exist.
    """
    for name in (table.name for table in catalogue.tables if table.name in _FOREIGN_USER_SQL):
        if not has_table(connection, name):
            continue
        row = connection.execute(_FOREIGN_USER_SQL[name], [server_name]).fetchone()
        if row:
            server = row[0].partition(":")[2]
            return [
                f"Users in the table {name} belong to {server}, but SYNAPSE_SERVER_NAME is {server_name}. Local users "
                "would count as remote. Correct SYNAPSE_SERVER_NAME, or the database in SYNAPSE_DSN."
            ]
    return []


def require_server_name(connection: Connection, catalogue: Catalogue, settings: Settings) -> None:
    """Raise :class:`SourceError` if the database belongs to another homeserver than SYNAPSE_SERVER_NAME."""
    if problems := check_server_name(connection, catalogue, str(settings.synapse_server_name)):
        raise SourceError("\n".join(problems))


def _explain_wrong_database(exists: Mapping[str, bool], name: str, databases: Sequence[Database]) -> str | None:
    """Return a message if the database ``name`` lacks tables of ``databases``, else None.

    Synapse creates ``schema_version`` in each of its databases (``synapse.storage.prepare_database``).
    """
    without = {database: [table for table in _TABLES[database] if not exists[table]] for database in Database}
    setting = "SYNAPSE_DSN" if Database.MAIN in databases else "SYNAPSE_STATE_DSN"
    has_schema = all(exists[grant.name] for grant in SCHEMA_TABLES)
    if not has_schema or all(without.values()):
        return (
            f"The database {name} is not the database of a Synapse homeserver, because this role sees no tables "
            f"schema_version, events and state_groups_state in it. Correct the database name in {setting}, or the "
            "role's rights and search_path. `lakehouse grants` prints the SQL for the rights."
        )
    if without[Database.MAIN] and Database.MAIN in databases:
        return (
            f"The database {name} contains only the state of a Synapse homeserver, no events: set SYNAPSE_STATE_DSN to "
            "this database, and SYNAPSE_DSN to the database with the events."
        )
    if (missing := without[Database.STATE]) and Database.STATE in databases:
        return (
            f"The database {name} has no {', '.join(missing)}. If `databases` in homeserver.yaml names another "
            "database for the state, set SYNAPSE_STATE_DSN to it. Otherwise restore these tables."
        )
    return None


def _find_unreadable_columns(connection: Connection, grant: Grant) -> str | None:
    """Return unreadable columns in parentheses, "" for an unreadable sequence, or None if everything is readable."""
    if grant.kind == "sequence":
        row = connection.execute("select has_sequence_privilege(%s, 'SELECT')", [grant.name]).fetchone()
        return None if row and row[0] else ""
    row = connection.execute(
        "select array(select c from unnest(%s::text[]) c where not has_column_privilege(%s, c, 'SELECT'))",
        [list(grant.columns), grant.name],
    ).fetchone()
    return f" ({', '.join(row[0])})" if row and row[0] else None
