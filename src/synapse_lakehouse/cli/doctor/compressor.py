"""The role that compresses state in Synapse's database, where one is set."""

import psycopg

from synapse_lakehouse.cli.doctor import role
from synapse_lakehouse.cli.doctor.finding import Finding, Findings, Level
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.postgres.connection import require_rights
from synapse_lakehouse.compressor.postgres.session import SESSION, SETTING
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import opened
from synapse_lakehouse.postgres.errors import SourceError

_SUBJECT = "compressor's role"


def examine(settings: Settings) -> Findings:
    """Can it compress, and do nothing else? Nothing is written, and another compressor may be at work."""
    if not settings.synapse_write_dsn:
        return
    try:
        _, connection = opened(settings.synapse_write_dsn, SESSION, SETTING)
        with connection:
            connection.read_only = True
            require_rights(connection)
            found = list(role.examine(connection, role.of_compressor(), "lakehouse grants --compress", _SUBJECT))
    except (CompressorError, SourceError) as error:
        yield Finding(Level.FAIL, _SUBJECT, str(error))
    except psycopg.Error as error:
        message = f"The database of {SETTING} cannot be examined. PostgreSQL reports: {' '.join(str(error).split())}"
        yield Finding(Level.FAIL, _SUBJECT, message)
    else:
        yield from found
