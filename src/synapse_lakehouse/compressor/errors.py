"""Errors of applying, verifying and restoring; their messages contain the remedy."""

from collections.abc import Sequence
from pathlib import Path

import psycopg

from synapse_lakehouse.compressor.algorithm.errors import CompressorError


class RoomSkippedError(CompressorError):
    """The room was skipped; the message gives the reason. Other rooms can be compressed."""


class NotApprovedError(CompressorError):
    """The plan differs from the approved plan."""


class CompressorRunningError(CompressorError):
    """Another compressor works on the same database or room."""


class VerificationError(CompressorError):
    """The state of a room changed when it was compressed. ``is_restored``: whether the room was restored."""

    def __init__(self, message: str, undo: Sequence[Path], *, is_restored: bool = False) -> None:
        super().__init__(message)
        self.undo, self.is_restored = tuple(undo), is_restored


def convert_database_error(error: psycopg.Error) -> CompressorError:
    """Convert an error of PostgreSQL. Only the first line of its message is used: other lines may quote rows."""
    first_line = str(error).partition("\n")[0]
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return CompressorError(
            f"The role lacks a privilege: {first_line}. `lakehouse grants` prints the SQL of the reading role, "
            "`lakehouse grants --compress` the SQL of the writing role."
        )
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return CompressorError(
            f"The database is read-only ({first_line}). SYNAPSE_WRITE_DSN must name the primary, with a role that may "
            "write: `lakehouse grants --compress` prints the SQL of the role."
        )
    if isinstance(error, psycopg.errors.DiskFull):
        return CompressorError(
            f"The disk of the database is full: {first_line}. Committed changes stay and are correct."
        )
    return CompressorError(
        f"PostgreSQL reported an error: {first_line}. Each state group is stored as before or as planned, with the "
        "same state. Run the command again to continue."
    )
