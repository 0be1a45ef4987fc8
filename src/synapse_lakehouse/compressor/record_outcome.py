"""Compress or restore a room and record the outcome: a row of ``audit.compression_runs``."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg

from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.errors import CompressorError, InvalidStateGroupsError
from synapse_lakehouse.compressor.compress_room import compress_room
from synapse_lakehouse.compressor.disk_check import require_free_space
from synapse_lakehouse.compressor.errors import RoomSkippedError, VerificationError, convert_database_error
from synapse_lakehouse.compressor.postgres.snapshot_connections import ReaderFactory
from synapse_lakehouse.compressor.postgres.writer import LOCKED_MESSAGE, GroupWriter
from synapse_lakehouse.compressor.restore import restore_room
from synapse_lakehouse.compressor.settings import CompressorSettings
from synapse_lakehouse.compressor.undo_file import UndoFile
from synapse_lakehouse.postgres.errors import ReadError, SourceError

OutcomeRow = dict[str, Any]


class Outcome(StrEnum):
    """The outcome of compressing or restoring a room."""

    COMPRESSED = "compressed"
    PARTIAL = "partial"
    """A lock or a change of the room prevented the rest of the compression; written groups are correct."""
    SKIPPED = "skipped"
    """The room was skipped: nothing was written."""
    STOPPED = "stopped"
    """The run stopped in this room; written groups are correct."""
    RESTORED = "restored"
    """A state changed, and the room was restored."""
    FAULTY = "faulty"
    """A state changed, and the room is not restored: an operator has to repair it."""
    UNDONE = "undone"
    """An operator restored the room from undo files."""


WRITTEN_OUTCOMES: Final = (Outcome.COMPRESSED, Outcome.PARTIAL)


def compress_and_record(
    room_id: str, settings: CompressorSettings, open_reader: ReaderFactory, writer: GroupWriter, undo_folder: Path,
    record: Callable[[OutcomeRow], None],
) -> OutcomeRow:  # fmt: skip
    """Compress a room and return its row. The row is also passed to ``record``, even if an exception follows.

    The row has the columns of ``audit.compression_runs`` except the columns of the run. A skipped room has no numbers.

    :raises CompressorError, SourceError, ReadError, OSError, psycopg.Error, KeyboardInterrupt: when no other room
        should be compressed. Written groups are correct and stay, or were restored. Exception: after a
        :class:`VerificationError` without ``is_restored``, an operator must repair the room.
    """
    return _run_and_record(
        {"room_id": room_id, **settings.layout_settings()},
        lambda: _compress(room_id, settings, open_reader, writer, undo_folder),
        record,
    )


def restore_and_record(
    undo_files: Sequence[UndoFile],
    open_reader: ReaderFactory,
    writer: GroupWriter,
    record: Callable[[OutcomeRow], None],
    *,
    repair: bool,
) -> OutcomeRow:
    """Restore a room from its undo files; record, return and raise as :func:`compress_and_record`.

    A room that no longer exists gets the outcome ``skipped``.

    :param repair: whether to trust the undo files if a state differs now.
    """

    def restore() -> OutcomeRow:
        try:
            numbers = restore_room(undo_files, open_reader, writer, repair=repair)
        except RoomSkippedError as error:
            return {"outcome": Outcome.SKIPPED, "error": str(error)}
        except InvalidStateGroupsError as error:
            hint = "" if repair else " If the undo files contain them, --repair restores them."
            raise CompressorError(
                f"State groups of {undo_files[0].room_id} cannot be resolved: {error}.{hint}"
            ) from None
        return {"outcome": Outcome.UNDONE, "error": LOCKED_MESSAGE if writer.gave_up_on_locks else None, **numbers}

    return _run_and_record({"room_id": undo_files[0].room_id}, restore, record)


def _run_and_record(
    room: OutcomeRow, work: Callable[[], OutcomeRow], record: Callable[[OutcomeRow], None]
) -> OutcomeRow:
    def finish(outcome: OutcomeRow) -> OutcomeRow:
        row = {**room, **outcome, "finished_at": datetime.now(UTC)}
        record(row)
        return row

    try:
        outcome = work()
    except (CompressorError, SourceError, ReadError, OSError, psycopg.Error, KeyboardInterrupt) as error:
        finish(_stopped_row(error))
        raise
    return finish(outcome)


def _compress(
    room_id: str, settings: CompressorSettings, open_reader: ReaderFactory, writer: GroupWriter, undo_folder: Path
) -> OutcomeRow:
    require = partial(require_free_space, writer.connection)
    try:
        numbers = compress_room(
            room_id, settings, open_reader, writer, undo_folder, writer.connection.info.dbname, require
        )
    except (InvalidStateGroupsError, RoomSkippedError) as error:
        return {"outcome": Outcome.SKIPPED, "error": str(error)}
    remainder = _describe_remainder(numbers["longest_chain"], settings, writer)
    return {"outcome": Outcome.PARTIAL if remainder else Outcome.COMPRESSED, "error": remainder, **numbers}


def _describe_remainder(longest_chain: int | None, settings: CompressorSettings, writer: GroupWriter) -> str | None:
    """Return the reason why the compression is incomplete; None if it is complete."""
    if writer.gave_up_on_locks:
        return LOCKED_MESSAGE
    if settings.strategy is Strategy.LEVELS or longest_chain is None or longest_chain <= settings.max_chain:
        return None
    return (
        f"A chain still has {longest_chain} state groups, because some of them were pending deletion or changed "
        "meanwhile. Compress the room again later."
    )


def _stopped_row(error: BaseException) -> OutcomeRow:
    if isinstance(error, VerificationError):
        outcome = Outcome.RESTORED if error.is_restored else Outcome.FAULTY
        return {"outcome": outcome, "error": str(error), "undo": list(map(str, error.undo))}
    reported = convert_database_error(error) if isinstance(error, psycopg.Error) else error
    return {
        "outcome": Outcome.STOPPED,
        "error": "Interrupted." if isinstance(error, KeyboardInterrupt) else str(reported),
    }
