"""Is this a Synapse database that the catalogue describes, and may we read it? Asked before anything is copied."""

from collections.abc import Iterable, Mapping
from typing import Final

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.postgres.access.grants import Grant, list_required_grants
from synapse_lakehouse.postgres.access.row_security import find_hidden_rows
from synapse_lakehouse.postgres.access.schema_drift import exclude_drifted_tables, find_drift
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import SourceError

_VERSION: Final = Grant("table", "schema_version", ("version",))
_OF_STATE: Final = ("state_groups", "state_group_edges", "state_groups_state")
_SPLIT: Final = (
    "A homeserver with several databases (`databases` in homeserver.yaml, with data_stores: [state] in one of them) is "
    "not supported yet: without events and their state in one PostgreSQL snapshot nobody can say who sees what."
)
_OF_ANOTHER: Final = {
    "users": (
        "select name from users"
        " where not exists (select from users where substr(name, strpos(name, ':') + 1) = %s) limit 1"
    ),
    "local_current_membership": (
        "select user_id from local_current_membership where not exists"
        " (select from local_current_membership where substr(user_id, strpos(user_id, ':') + 1) = %s) limit 1"
    ),
}
"""By table of this server's users, a query for one of them where none is of the given server."""


def check_source_database(
    connection: Connection, catalogue: Catalogue, server_name: str, *, may_be_partial: bool = False
) -> int:
    """Refuse a database that cannot be copied whole.

    :param may_be_partial: let tables that drifted from the catalogue be, so that the others can be copied.
    :returns: its Synapse SCHEMA_VERSION.
    :raises SourceError: with every problem found, one a line.
    """
    version = read_schema_version(connection)
    if not catalogue.oldest_schema_version <= version <= catalogue.newest_schema_version:
        raise SourceError(
            f"This database has Synapse's schema version {version}; versions {catalogue.oldest_schema_version} to "
            f"{catalogue.newest_schema_version} are supported. "
            + (
                "Upgrade Synapse."
                if version < catalogue.oldest_schema_version
                else "Upgrade the lakehouse before Synapse next time."
            )
        )
    catalogue = exclude_drifted_tables(catalogue, connection, may_be_partial=may_be_partial)
    problems = [found.message for found in find_drift(catalogue, connection) if found.kind != "missing_unique_key"]
    problems = problems or [*find_missing_grants(connection, catalogue), *check_row_security(connection, catalogue)]
    problems = problems or check_server_name(connection, catalogue, server_name)
    if problems:
        raise SourceError("\n".join(problems))
    return version


def read_schema_version(connection: Connection) -> int:
    """Synapse's SCHEMA_VERSION of the database.

    :raises SourceError: when it is not the one database of a Synapse homeserver, or the version cannot be read.
    """
    rows = connection.execute(
        "select name, to_regclass(name) is not null, current_database() from unnest(%s::text[]) as name",
        [["schema_version", "events", *_OF_STATE]],
    ).fetchall()
    if problem := _another_database({name: exists for name, exists, _ in rows}, rows[0][2]):
        raise SourceError(problem)
    if problems := _missing(connection, [_VERSION]) or find_hidden_rows(connection, [_VERSION.name]):
        raise SourceError("\n".join(problems))
    row = connection.execute("select version from schema_version").fetchone()
    if row is None:
        raise SourceError("The table schema_version is empty: Synapse never finished preparing this database.")
    return int(row[0])


def check_row_security(connection: Connection, catalogue: Catalogue) -> list[str]:
    """A message if row-level security hides rows that the copy needs."""
    return find_hidden_rows(connection, _tables(catalogue))


def find_missing_grants(connection: Connection, catalogue: Catalogue) -> list[str]:
    """Tables, columns and sequences that the role may not read, each with the GRANT that mends it."""
    return _missing(connection, list_required_grants(catalogue))


def check_server_name(connection: Connection, catalogue: Catalogue, server_name: str) -> list[str]:
    """A sentence if no local user of the database belongs to the server_name that was set.

    Synapse looks at one account when it starts (``synapse.storage.databases.main.check_database_before_upgrade``), and
    so may live with an odd one.
    """
    for table in (one.name for one in catalogue.tables if one.name in _OF_ANOTHER):
        row = connection.execute(_OF_ANOTHER[table], [server_name]).fetchone()
        if row:
            server = row[0].partition(":")[2]
            return [
                f"Users in this database's {table} belong to {server}, but SYNAPSE_SERVER_NAME is {server_name}. Local "
                "users would be taken for remote ones. Correct SYNAPSE_SERVER_NAME, or the database in SYNAPSE_DSN."
            ]
    return []


def _another_database(exists: Mapping[str, bool], name: str) -> str | None:
    """Why a database with and without these tables is not the one of a Synapse homeserver; None if it is.

    Synapse keeps ``schema_version`` in each of its databases (``synapse.storage.prepare_database``).
    """
    without_state = [table for table in _OF_STATE if not exists[table]]
    if not exists["schema_version"] or (not exists["events"] and without_state):
        return (
            f"The database {name} is not a Synapse homeserver's: it has no tables schema_version, events and "
            "state_groups_state that this role can see. Correct the database name in SYNAPSE_DSN, or the role's rights "
            "and search_path: `lakehouse grants` prints the SQL."
        )
    if not exists["events"]:
        return (
            f"The database {name} has only the state of a Synapse homeserver: there are no events. {_SPLIT} Only "
            "`lakehouse compress` works on the database of the state, which SYNAPSE_WRITE_DSN then names."
        )
    if without_state:
        return (
            f"The database {name} is of a Synapse homeserver that keeps its state in another database: it has no "
            f"{', '.join(without_state)}. {_SPLIT} If the homeserver has one database, these tables were dropped or "
            "not restored."
        )
    return None


def _tables(catalogue: Catalogue) -> list[str]:
    return [right.name for right in list_required_grants(catalogue) if right.kind == "table"]


def _missing(connection: Connection, rights: Iterable[Grant]) -> list[str]:
    row = connection.execute("select quote_ident(current_user)").fetchone()
    role = str(row[0]) if row else "?"
    return [
        f"The role {role} may not read {right.name}{what}. As the owner of the database run: {right.to_sql(role)}"
        for right in rights
        if (what := _unreadable(connection, right)) is not None
    ]


def _unreadable(connection: Connection, right: Grant) -> str | None:
    """The columns of ``right`` that the role lacks, in brackets; empty for a sequence; None if it has them all."""
    if right.kind == "sequence":
        row = connection.execute("select has_sequence_privilege(%s, 'SELECT')", [right.name]).fetchone()
        return None if row and row[0] else ""
    row = connection.execute(
        "select array(select c from unnest(%s::text[]) c where not has_column_privilege(%s, c, 'SELECT'))",
        [list(right.columns), right.name],
    ).fetchone()
    return f" ({', '.join(row[0])})" if row and row[0] else None
