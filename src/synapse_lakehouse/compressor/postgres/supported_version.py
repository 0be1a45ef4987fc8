"""Refuse a database if this version of the lakehouse may not know the state tables of its Synapse release."""

from synapse_lakehouse.catalogue import Database, load_catalogue
from synapse_lakehouse.postgres.access import preflight
from synapse_lakehouse.postgres.access.grants import SCHEMA_VERSION
from synapse_lakehouse.postgres.connection import Connection


def require_supported_version(connection: Connection) -> None:
    """Check the schema version of the database with the state, and the tables of state if Synapse is newer.

    :raises SourceError: when the version is not supported, or cannot be read.
    """
    preflight.require_supported_version(connection, load_catalogue().of_database(Database.STATE), [SCHEMA_VERSION])
