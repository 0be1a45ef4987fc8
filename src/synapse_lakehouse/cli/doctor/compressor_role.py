"""Check the role of SYNAPSE_WRITE_DSN, which compresses state."""

import psycopg

from synapse_lakehouse.cli.doctor import excess_privileges
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.postgres.connection import require_rights, require_state_database
from synapse_lakehouse.compressor.postgres.session_settings import SESSION_SETTINGS, WRITE_DSN_SETTING
from synapse_lakehouse.compressor.postgres.supported_version import require_supported_version
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.state_database import explain_foreign_state
from synapse_lakehouse.postgres.connection import Connection, connect, open_connection
from synapse_lakehouse.postgres.errors import SourceError

_SUBJECT = "compressor's role"


def examine(settings: Settings) -> Findings:
    """Check that the role has exactly the privileges to compress. The check writes nothing, and takes no lock."""
    if not settings.synapse_write_dsn:
        return
    try:
        _, connection = open_connection(settings.synapse_write_dsn, SESSION_SETTINGS, WRITE_DSN_SETTING)
        with connection:
            connection.read_only = True
            require_rights(connection)
            require_supported_version(connection)
            require_state_database(connection, settings)
            _require_same_homeserver(settings, connection)
            findings = list(
                excess_privileges.examine(
                    connection, excess_privileges.compressor_privileges(), "lakehouse grants --compress", _SUBJECT
                )
            )
    except (CompressorError, SourceError) as error:
        yield DoctorFinding(FindingLevel.FAIL, _SUBJECT, str(error))
    except psycopg.Error as error:
        reported = " ".join(str(error).split())
        message = f"The database of {WRITE_DSN_SETTING} cannot be examined. PostgreSQL reports: {reported}"
        yield DoctorFinding(FindingLevel.FAIL, _SUBJECT, message)
    else:
        yield from findings


def _require_same_homeserver(settings: Settings, connection: Connection) -> None:
    """Compare the state with the events of SYNAPSE_DSN: the compressor's role may not read the names of users."""
    if settings.synapse_dsn:
        with connect(settings) as source:
            if problem := explain_foreign_state(source, connection, WRITE_DSN_SETTING):
                raise CompressorError(problem)
