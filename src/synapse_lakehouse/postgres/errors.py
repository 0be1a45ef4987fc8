"""What can be wrong with the source, said so that an operator knows what to do."""

import re
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from synapse_lakehouse.errors import LakehouseError

_CONFLICT: Final = "conflict with recovery"
_SERIALIZATION_FAILURE: Final = "40001"
_NOT_THERE: Final = re.compile('(database|role) ".*" does not exist')


class SourceError(LakehouseError):
    """Synapse's database cannot be read as it is; nothing was changed in the lake or there."""


class ReadError(LakehouseError):
    """A statement failed, or its connection was lost: worth another try.

    Only the first line of what PostgreSQL said is kept. The others may quote what is in the tables, such as a whole
    value that is not JSON.
    """

    is_transient = True

    def __init__(self, error: Exception) -> None:
        said = str(error).partition("\n")[0]
        is_unsaid = is_recovery_conflict(error) and _CONFLICT not in said
        super().__init__(f"{said} ({_CONFLICT})" if is_unsaid else said)


def explain_connection_failure(error: psycopg.Error, conninfo: str, setting: str = "SYNAPSE_DSN") -> SourceError:
    """The error of a connection that could not be made, naming host and database but never the password.

    :param setting: where ``conninfo`` comes from.
    """
    given = conninfo_to_dict(conninfo)
    where = f"{given.get('dbname', 'the default database')} at {given.get('host', 'the local socket')}"
    where += f":{given['port']}" if "port" in given else ""
    said = " ".join(str(error).split())
    if "password authentication failed" in said or "no password supplied" in said:
        advice = f"The password for {given.get('user', 'this user')} is wrong or missing. Correct it in {setting}."
    elif _NOT_THERE.search(said):
        advice = f"The server is there, but that database or role is not. Correct its name in {setting}."
    elif "permission denied for database" in said:
        advice = (
            "The role may not connect to it. As the owner of the database: GRANT CONNECT ON DATABASE … TO the role."
        )
    elif "unrecognized configuration parameter" in said:
        advice = "The server is too old: Synapse and the lakehouse need PostgreSQL 14 or later. Upgrade it."
    elif "pg_hba.conf" in said:
        advice = "The server does not let this machine or role in. Add a line for it to pg_hba.conf."
    elif "too many" in said or "remaining connection slots" in said:
        advice = "The server has no free connection. Raise max_connections, or run at a quieter time."
    elif "unsupported startup parameter" in said:
        advice = (
            "A pooler answers there, as PgBouncer does, and a consistent copy needs sessions of its own. Give the "
            f"address of PostgreSQL itself in {setting}."
        )
    elif "certificate" in said or "SSL" in said:
        advice = f"TLS was not agreed on. Check sslmode and sslrootcert in {setting}, and the server's certificate."
    else:
        advice = f"It cannot be reached. Check host and port in {setting}, and that PostgreSQL is running."
    return SourceError(f"No connection to {where}. {advice} PostgreSQL said: {said}")


class RecoveryConflictError(SourceError):
    """A standby took the snapshot back, because its primary removed row versions that the snapshot still saw."""

    def __init__(self) -> None:
        super().__init__(
            "The standby cancelled the copy (conflict with recovery): its primary removed rows that the copy's "
            "snapshot still saw, and the standby does not wait so long. There set hot_standby_feedback = on, or "
            "max_standby_streaming_delay higher than a copy takes; or run when the primary is quiet."
        )


def is_recovery_conflict(error: BaseException) -> bool:
    """Whether ``error`` comes from a standby that cancelled a statement, or ended a session, to go on with recovery.

    Errors of Spark's workers reach the driver as text. PostgreSQL's own may be in any language; what only reads cannot
    fail to be serialized for another reason (https://www.postgresql.org/docs/current/errcodes-appendix.html).
    """
    return _CONFLICT in str(error) or getattr(error, "sqlstate", None) == _SERIALIZATION_FAILURE
