"""Compress a room, or undo that, and have recorded what became of it: a row of ``audit.compression_runs``."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg

from synapse_lakehouse.compressor.algorithm.errors import CompressorError, InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.settings import CompressorSettings, Strategy
from synapse_lakehouse.compressor.compress_room import CompressionResult, compress_room
from synapse_lakehouse.compressor.disk_check import require_free_space
from synapse_lakehouse.compressor.errors import RoomSkippedError, VerificationError, convert_database_error
from synapse_lakehouse.compressor.postgres.snapshot_reader import ReaderFactory
from synapse_lakehouse.compressor.postgres.writer import LOCKED_MESSAGE, GroupWriter
from synapse_lakehouse.compressor.restore import restore_room
from synapse_lakehouse.compressor.undo_file import UndoFile
from synapse_lakehouse.postgres.errors import ReadError, SourceError

OutcomeRow = dict[str, Any]


class Outcome(StrEnum):
    """What became of a room that a run was to compress."""

    COMPRESSED = "compressed"
    PARTLY = "partly"
    """Somebody was in the way: what was written is right, and the rest is left to another run."""
    LEFT = "left"
    """Nothing was written."""
    STOPPED = "stopped"
    """What was written is right; the run ended here."""
    PUT_BACK = "put_back"
    """It did not read as before, and is stored as it was."""
    FAULTY = "faulty"
    """It does not read as before, and is not put back: somebody has to."""
    UNDONE = "undone"
    """Stored again as undo files have it, because somebody asked for that."""


WRITTEN_OUTCOMES: Final = (Outcome.COMPRESSED, Outcome.PARTLY)


def compress_and_record(
    room_id: str, wanted: CompressorSettings, reading: ReaderFactory, writer: GroupWriter, undo_folder: Path,
    record: Callable[[OutcomeRow], None],
) -> OutcomeRow:  # fmt: skip
    """Compress a room; the row, which ``record`` was given as soon as it was known, also where this raises.

    Columns of ``audit.compression_runs`` but for those of the run; a room of which nothing was written has no numbers.

    :raises CompressorError, SourceError, ReadError, OSError, psycopg.Error, KeyboardInterrupt: when no further room
        should be tried; what was written is right and stays, or was put back.
    """

    return _recorded(
        {"room_id": room_id, **wanted.layout_settings()},
        lambda: _became(room_id, wanted, reading, writer, undo_folder),
        record,
    )


def restore_and_record(
    kept: Sequence[UndoFile],
    reading: ReaderFactory,
    writer: GroupWriter,
    record: Callable[[OutcomeRow], None],
    *,
    repair: bool,
) -> OutcomeRow:
    """Put the room that all of ``kept`` are of back; a row, recorded and raised as by :func:`compress_and_record`.

    A room that is gone is ``left``.

    :param repair: whether ``kept`` is right where a group resolves otherwise now.
    """

    def work() -> OutcomeRow:
        try:
            numbers = restore_room(kept, reading, writer, repair=repair)
        except RoomSkippedError as error:
            return {"outcome": Outcome.LEFT, "error": str(error)}
        except InvalidStateGroupsError as error:
            hint = "" if repair else " Where the undo files have these as they were, --repair puts them back."
            raise CompressorError(f"State groups of {kept[0].room_id} cannot be resolved: {error}.{hint}") from None
        return {"outcome": Outcome.UNDONE, "error": LOCKED_MESSAGE if writer.gave_up_on_locks else None, **numbers}

    return _recorded({"room_id": kept[0].room_id}, work, record)


def _recorded(room: OutcomeRow, work: Callable[[], OutcomeRow], record: Callable[[OutcomeRow], None]) -> OutcomeRow:
    def done(became: OutcomeRow) -> OutcomeRow:
        row = {**room, **became, "finished_at": datetime.now(UTC)}
        record(row)
        return row

    try:
        became = work()
    except (CompressorError, SourceError, ReadError, OSError, psycopg.Error, KeyboardInterrupt) as error:
        done(_stopped(error))
        raise
    return done(became)


def _became(
    room_id: str, wanted: CompressorSettings, reading: ReaderFactory, writer: GroupWriter, undo_folder: Path
) -> OutcomeRow:
    require = partial(require_free_space, writer.connection)
    try:
        done = compress_room(room_id, wanted, reading, writer, undo_folder, writer.connection.info.dbname, require)
    except (InvalidStateGroupsError, RoomSkippedError) as error:
        return {"outcome": Outcome.LEFT, "error": str(error)}
    rest = _rest(done, wanted, writer)
    return {
        "outcome": Outcome.PARTLY if rest else Outcome.COMPRESSED,
        "error": rest,
        "rows_before": done.plan.rows_before,
        "rows_after": done.rows,
        "bytes_before": done.plan.bytes_before,
        "bytes_after": done.plan.bytes_after,
        "groups_rewritten": done.groups_written,
        "groups_left": done.groups_left,
        "longest_chain": done.longest_chain,
        "seconds": done.seconds,
        "longest_lock_ms": 1000 * writer.pace.longest,
        "undo": [str(path) for path in done.undo],
        **done.seen(),
    }


def _rest(done: CompressionResult, wanted: CompressorSettings, writer: GroupWriter) -> str | None:
    """What is left of a room that was compressed, said; None if nothing is."""
    if writer.gave_up_on_locks:
        return LOCKED_MESSAGE
    if wanted.strategy is Strategy.LEVELS or done.longest_chain is None or done.longest_chain <= wanted.max_chain:
        return None
    return (
        f"the rest: a chain has {done.longest_chain} state groups, as some of them were about to be deleted or changed "
        "meanwhile. Run it again later."
    )


def _stopped(error: BaseException) -> OutcomeRow:
    if isinstance(error, VerificationError):
        outcome = Outcome.PUT_BACK if error.is_put_back else Outcome.FAULTY
        return {"outcome": outcome, "error": str(error), "undo": list(map(str, error.undo))}
    said = convert_database_error(error) if isinstance(error, psycopg.Error) else error
    return {
        "outcome": Outcome.STOPPED,
        "error": "Somebody stopped it." if isinstance(error, KeyboardInterrupt) else str(said),
    }
