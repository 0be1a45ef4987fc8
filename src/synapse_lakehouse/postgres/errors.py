"""Errors of reading Synapse's database. Each message names the remedy."""

import re
from collections.abc import Collection
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from synapse_lakehouse.errors import LakehouseError

_CONFLICT: Final = "conflict with recovery"
_SERIALIZATION_FAILURE: Final = "40001"
_INVALID_TEXT: Final = "invalid byte sequence for encoding"
_CHARACTER_NOT_IN_REPERTOIRE: Final = "22021"
_SNAPSHOT_TOO_OLD: Final = "72000"
_INTERNAL_ERROR: Final = "XX000"
DAMAGE_CODES: Final = frozenset({_INTERNAL_ERROR, "XX001", "XX002", "58030", "58P01"})
"""SQLSTATEs of reads of damaged or missing files: internal error, data or index corrupted, I/O error, no such file."""

_ADVICE: Final = {
    "password authentication failed|no password supplied": (
        "The password for {user} is wrong or missing. Correct it in {setting}."
    ),
    "(Peer|Ident) authentication failed": (
        "The server accepts this role without a password only from the operating system's user of the same name. Set "
        "host and password in {setting}, or map the users in the server's pg_ident.conf."
    ),
    'definition of service ".*" not found|service file ".*" not found': (
        "The service file of libpq does not exist or does not define this service. Correct service in {setting}, the "
        "file ~/.pg_service.conf or the variable PGSERVICEFILE."
    ),
    '(database|role) ".*" does not exist': ("The server has no such database or role. Correct the name in {setting}."),
    "permission denied for database": (
        "The role lacks the right CONNECT. As the owner of the database run: GRANT CONNECT ON DATABASE … TO the role."
    ),
    "unrecognized configuration parameter": (
        "The server is too old: Synapse and the lakehouse need PostgreSQL 14 or later. Upgrade PostgreSQL."
    ),
    "pg_hba.conf.*no encryption": (
        "The server's pg_hba.conf does not admit this machine or role without TLS. Set sslmode=require or verify-full "
        "in {setting}, or add a line for it."
    ),
    "pg_hba.conf": "The server's pg_hba.conf does not admit this machine or role. Add a line for it.",
    "too many connections for (role|database)": (
        "The limit of {user} or of the database is reached. A role's limit counts its connections to all databases of "
        "the server. Run the SQL of `lakehouse grants` again with a larger LAKEHOUSE_SOURCE_CONNECTIONS. If several "
        "homeservers share the server, give each a role of its own (`lakehouse grants --role`)."
    ),
    "too many|remaining connection slots": (
        "The server has no free connection. Raise max_connections, or run at a quieter time."
    ),
    "unsupported startup parameter": (
        "{setting} has the address of a connection pooler such as PgBouncer, but a consistent copy needs direct "
        "sessions. Set it to the address of PostgreSQL itself."
    ),
    "has group or world access": (
        "Other users can read the private key of the client certificate, so libpq refuses it. Run chmod 600 on it."
    ),
    "weak sslmode": (
        "The certificates of the system need sslmode=verify-full. Set it in {setting}, or set sslrootcert to the file "
        "of the server's CA."
    ),
    "certificate|private key|SSL": (
        "The TLS connection failed. Check sslmode, sslrootcert, sslcert and sslkey in {setting}, and the server's "
        "certificate."
    ),
}
"""Advice by a pattern of PostgreSQL's or libpq's message. The first pattern that matches counts."""

_UNREACHABLE: Final = "The server cannot be reached. Check host and port in {setting}, and that PostgreSQL is running."


_DAMAGED_FILE_ADVICE: Final = (
    "If the message names a path, `select pg_filenode_relation(0, N)` with the last number N of the path returns the "
    'index or the table. For an index, follow "A damaged index" in docs/runbooks/integrity.md: copy its file, then run '
    "REINDEX. For a table, restore the database from a backup."
)


class SourceError(LakehouseError):
    """Synapse's database cannot be read in its present state. Neither the lake nor the database was changed."""


class ReadError(LakehouseError):
    """A statement failed, or its connection was lost; a retry may succeed.

    The message contains only the first line of PostgreSQL's message. Other lines may quote values from tables.
    """

    is_transient = True

    def __init__(self, error: Exception) -> None:
        message = str(error).partition("\n")[0]
        if getattr(error, "sqlstate", None) == _SNAPSHOT_TOO_OLD:
            # PostgreSQL 14 to 16 have the setting; off is the default.
            message += " (set old_snapshot_threshold of the server to -1, or to more than the duration of a copy)"
        # PostgreSQL's message may be in any language, and Spark's workers return only the text of an error.
        for is_recognized, reason in ((is_recovery_conflict, _CONFLICT), (is_invalid_text, _INVALID_TEXT)):
            if is_recognized(error) and reason not in message:
                message += f" ({reason})"
        super().__init__(message)


class DamagedFileError(ReadError):
    """PostgreSQL cannot read a file. Without the first page of an index, every query of the table fails."""

    is_transient = False

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.args = (f"PostgreSQL cannot read a file of Synapse's database: {self}. {_DAMAGED_FILE_ADVICE}",)


class LockedTableError(LakehouseError):
    """Another session locks a whole table, such as an upgrade of Synapse. A retry may succeed after that session."""

    is_transient = True
    needs_pause = True

    def __init__(self, blocked_tables: Collection[str]) -> None:
        """:param blocked_tables: tables whose lock the session waits for; empty if it has the lock already."""
        if blocked_tables:
            message = (
                f"Another session waits to change {', '.join(sorted(blocked_tables))}, and Synapse waits for that "
                "session. The copy stopped, so that it does not block an upgrade of Synapse."
            )
        else:
            message = "Another session has locked a table for more than 10 s, so the copy stopped."
        super().__init__(
            f"{message} Such a session is an upgrade of Synapse that changes its schema, TRUNCATE, or VACUUM FULL. "
            "Nothing was published. A retry continues the copy. After an upgrade, run the SQL of `lakehouse grants`."
        )


def explain_connection_failure(error: psycopg.Error, conninfo: str, setting: str = "SYNAPSE_DSN") -> SourceError:
    """Return the error for a failed connection. Its message names host and database, never the password.

    :param setting: name of the setting that contains ``conninfo``.
    """
    parameters = conninfo_to_dict(conninfo)
    if "service" in parameters:
        server = f"the service {parameters['service']}"
    else:
        host = parameters.get("host") or parameters.get("hostaddr", "the local socket")
        server = f"{parameters.get('dbname', 'the default database')} at {host}"
        server += f":{parameters['port']}" if "port" in parameters else ""
    message = " ".join(str(error).split())
    advice = next((advice for pattern, advice in _ADVICE.items() if re.search(pattern, message)), _UNREACHABLE)
    advice = advice.format(setting=setting, user=parameters.get("user", "this user"))
    return SourceError(f"No connection to {server}. {advice} PostgreSQL's message: {message}")


class RecoveryConflictError(SourceError):
    """A standby cancelled the copy, because its primary removed row versions of the copy's PostgreSQL snapshot."""

    def __init__(self) -> None:
        super().__init__(
            "The standby cancelled the copy (conflict with recovery), because its primary removed row versions that "
            "the copy's snapshot still needed. On the standby set hot_standby_feedback = on, or set "
            "max_standby_streaming_delay to more than the duration of a copy. Or run when the primary is quiet."
        )


class InvalidTextError(SourceError):
    """PostgreSQL refuses to send a text that is not UTF-8. A database with the encoding SQL_ASCII may contain one."""

    def __init__(self) -> None:
        super().__init__(
            "Synapse's database contains text that is not UTF-8, which PostgreSQL refuses to send, so the database "
            "cannot be copied. This happens with the encoding SQL_ASCII, on which Synapse refuses to start. Nothing "
            "was published. Restore a dump in a new database with the encoding UTF8 and the locale C. PostgreSQL then "
            "names the table and the line of each such text: correct them in the dump."
        )


class SeveralServersError(SourceError):
    """A load balancer has led a reader to a server that does not have the PostgreSQL snapshot."""

    def __init__(self, setting: str) -> None:
        super().__init__(
            f"Several servers are behind {setting}: a reader reached another server than the one of the copy's "
            f"snapshot. Nothing was published. Set {setting} to the address of one server instead of a load balancer."
        )


def convert_read_error(error: Exception) -> ReadError:
    """Return the error for a failed statement. An internal error of PostgreSQL may have causes other than damage."""
    is_damage = getattr(error, "sqlstate", None) in DAMAGE_CODES - {_INTERNAL_ERROR}
    return DamagedFileError(error) if is_damage else ReadError(error)


def is_recovery_conflict(error: BaseException) -> bool:
    """Return whether a standby cancelled a statement, or ended a session, to continue its recovery.

    Errors of Spark's workers reach the driver as text, and PostgreSQL's message may be in any language. Therefore the
    SQLSTATE of a serialization failure counts as well: a read-only transaction has no other cause for that failure
    (https://www.postgresql.org/docs/current/errcodes-appendix.html).
    """
    return _CONFLICT in str(error) or getattr(error, "sqlstate", None) == _SERIALIZATION_FAILURE


def is_invalid_text(error: BaseException) -> bool:
    """Return whether a text of the database is not UTF-8. Errors of Spark's workers reach the driver as text."""
    return _INVALID_TEXT in str(error) or getattr(error, "sqlstate", None) == _CHARACTER_NOT_IN_REPERTOIRE


def is_unknown_snapshot(error: BaseException) -> bool:
    """Return whether a server lacks the snapshot that a reader imports. PostgreSQL 17 changed the error's message."""
    return re.search('invalid snapshot identifier|snapshot ".*" does not exist', str(error)) is not None
