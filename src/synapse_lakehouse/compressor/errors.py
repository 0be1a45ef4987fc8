"""What can go wrong while state is rewritten, said so that an operator knows what to do."""

from collections.abc import Sequence
from pathlib import Path

import psycopg

from synapse_lakehouse.compressor.algorithm.errors import CompressorError


class RoomSkippedError(CompressorError):
    """This room is left as it is; the message says why. Others can be compressed."""


class NotApprovedError(CompressorError):
    """What would be applied is not what somebody approved."""


class CompressorRunningError(CompressorError):
    """Somebody else compresses, too."""


class VerificationError(CompressorError):
    """A room does not read as before it was compressed. ``is_put_back``: whether it is stored as before by now."""

    def __init__(self, message: str, undo: Sequence[Path], *, is_put_back: bool = False) -> None:
        super().__init__(message)
        self.undo, self.is_put_back = tuple(undo), is_put_back


def convert_database_error(error: psycopg.Error) -> CompressorError:
    """The error for people of a statement that failed; only the first line of what PostgreSQL said is kept."""
    said = str(error).partition("\n")[0]
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return CompressorError(
            f"The role lacks a right: {said}. `lakehouse grants` prints the SQL of the role that plans, "
            "`lakehouse grants --compress` of the one that writes."
        )
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return CompressorError(
            f"The database does not take changes ({said}). SYNAPSE_WRITE_DSN has to lead to the primary, with a role "
            "that may write: `lakehouse grants --compress` prints its SQL."
        )
    if isinstance(error, psycopg.errors.DiskFull):
        return CompressorError(f"The disk of the database is full: {said}. What was committed stays, and is right.")
    return CompressorError(
        f"The database failed: {said}. Every group is stored as before or as planned, both of which resolve to the "
        "same. Run the command again to go on."
    )
