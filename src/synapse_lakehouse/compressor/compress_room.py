"""Compress a room: read, plan, keep what there was, write, read again and compare."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from synapse_lakehouse.compressor import undo_file
from synapse_lakehouse.compressor.algorithm.compare_states import find_differing_groups
from synapse_lakehouse.compressor.algorithm.errors import CompressorError, InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.estimate import (
    PlannedGroups,
    RoomPlan,
    estimate_room,
    summarize_stored_room,
)
from synapse_lakehouse.compressor.algorithm.row_changes import compute_changes
from synapse_lakehouse.compressor.algorithm.settings import CompressorSettings, Strategy
from synapse_lakehouse.compressor.algorithm.state_arrays import StateTables
from synapse_lakehouse.compressor.errors import RoomSkippedError, VerificationError
from synapse_lakehouse.compressor.postgres.room_reader import StoredRoom
from synapse_lakehouse.compressor.postgres.snapshot_reader import ReaderFactory
from synapse_lakehouse.compressor.postgres.writer import GroupWriter
from synapse_lakehouse.compressor.progress import ProgressTracker
from synapse_lakehouse.compressor.read_cost import ReadCost, cost_columns, sample_groups
from synapse_lakehouse.compressor.restore_groups import restore_groups
from synapse_lakehouse.compressor.verify import verify_room
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition

_PASSES: Final = 3


@dataclass(frozen=True)
class CompressionResult:
    """What was done to a room."""

    plan: RoomPlan
    groups_written: int
    groups_left: int
    """Groups to rewrite that were left alone, as they are in use, about to be deleted or changed meanwhile."""
    undo: tuple[Path, ...]
    rows: int
    """Rows of its groups in the end."""
    longest_chain: int | None
    seconds: float
    cost_before: ReadCost | None
    """Of reading some of its states; None where nothing was to be written."""
    cost_after: ReadCost | None
    disk_before: int
    """Bytes that the state of all rooms took on disk, and takes now."""
    disk_after: int

    def seen(self) -> dict[str, float | None]:
        """What reading costs and what is on disk: columns of ``audit.compression_runs``."""
        return cost_columns(self.cost_before, self.cost_after, (self.disk_before, self.disk_after))


def plan_room(room: StoredRoom, settings: CompressorSettings) -> tuple[PlannedGroups, RoomPlan]:
    """The plan of a room that was read.

    :raises InvalidStateGroupsError: for groups that cannot be what Synapse stored.
    :raises RoomSkippedError: for levels that no compressor writes.
    """
    is_best = settings.strategy is Strategy.BEST
    if not is_best:
        room.saved.require_levels()
    return estimate_room(
        room.contents, room.room_id, settings, None if is_best else room.saved.progress,
        excluded=room.unreferenced.tolist() if is_best else (),
        untouchable=room.untouchable.tolist() if is_best else (),
        begun=() if room.saved.unfinished_chunk_end is None else (room.saved.unfinished_chunk_end,),
    )  # fmt: skip


def compress_room(
    room_id: str, settings: CompressorSettings, reading: ReaderFactory, writer: GroupWriter, undo_folder: Path,
    database: str, require: Callable[[RoomPlan, Path], None] = lambda plan, folder: None,
) -> CompressionResult:  # fmt: skip
    """Compress one room of the database that ``reading`` reads and ``writer`` writes.

    A room that grows meanwhile, or some groups of which cannot be rewritten, may end with a chain that is too long; it
    is compressed again.

    :param require: raises ``RoomSkippedError`` for a plan that should not be carried out.

    :raises InvalidStateGroupsError, RoomSkippedError: when the room cannot be compressed; nothing was written.
    :raises CompressorError: when what there was cannot be kept in ``undo_folder``, or is of another history of the
        database; nothing more was written.
    :raises CompressorRunningError: when somebody else changed what is saved of the room; what was written stays.
    :raises VerificationError: when a group resolves to another state than before it was ever written; the room was put
        back if this call wrote it.
    """
    began = time.monotonic()
    written = left = 0
    interrupted = undo_file.find_not_compared(undo_folder, room_id, database)
    kept: list[Path] = [one.path for one in interrupted]
    plan_by_pass: list[RoomPlan] = []
    costs: list[ReadCost | None] = []
    disk: list[int] = []
    for _ in range(_PASSES):
        try:
            with reading() as reader:
                room, lineage = reader.room(room_id), reader.lineage()
            plans, numbers = plan_room(room, settings)
        except (InvalidStateGroupsError, RoomSkippedError):
            # What was written before is compared; what became of the room since is no matter of ours.
            if plan_by_pass:
                break
            raise
        if interrupted and not plan_by_pass:
            numbers = _since_before(numbers, _require_as_before(room.contents, interrupted, lineage))
        wanted = compute_changes(plans)
        progress = ProgressTracker(room, settings.strategy, plans.steps, wanted)
        del plans
        plan_by_pass.append(numbers)
        undo_file.create_folder(undo_folder)
        require(numbers, undo_folder)
        if not plan_by_pass[1:]:
            with reading() as reader:
                disk.append(reader.on_disk())
                costs.append(reader.read_cost(sample_groups(room.ids)) if len(wanted) else None)
        own = (
            undo_file.write(undo_folder, room_id, database, lineage, wanted.ids, room.contents) if len(wanted) else None
        )
        kept += [own] if own else []
        alone = len(writer.write(wanted, room.known, progress.save))
        written, left = written + len(wanted) - alone, left + alone
        with reading() as reader:
            now = reader.contents(room_id)
            after, disk_after = reader.read_cost(costs[0].groups) if costs[0] else None, reader.on_disk()
        if wrong := _wrong(room.contents, now):
            raise _put_back(wrong, own, room, now, reading, writer, kept)
        kept = [undo_file.mark_compared(path) for path in kept]
        found = verify_room(now, room_id, settings.max_chain)
        may_become_shorter = alone or now.groups.num_rows > room.contents.groups.num_rows
        if settings.strategy is Strategy.LEVELS or writer.gave_up_on_locks or not (found.faults and may_become_shorter):
            break
    return CompressionResult(
        plan_by_pass[0], written, left, tuple(kept), found.rows, found.longest_chain, time.monotonic() - began,
        costs[0], after, disk[0], disk_after,
    )  # fmt: skip


def _require_as_before(
    now: StateTables, interrupted: Sequence[undo_file.UndoFile], lineage: WalPosition
) -> StateTables:
    """The room as it was before the attempts that were interrupted."""
    room_id, files = interrupted[0].room_id, [one.path for one in interrupted]
    was = undo_file.contents_before(interrupted, now)
    if not (wrong := _wrong(was, now)):
        return was
    if any(one.may_be_of_other_groups(lineage) for one in interrupted):
        # That is no fault of the room, which nobody could repair.
        raise CompressorError(
            f"Compressing {room_id} was interrupted, and the database was restored or failed over since: what is in "
            f"{' '.join(map(str, files))} is of other state groups by now. Nothing is written. Move these files away, "
            "and run it again."
        )
    raise VerificationError(
        f"{wrong} since compressing {room_id} was interrupted. Nothing more is written. {_by_hand(files)}", files
    )


def _since_before(plan: RoomPlan, was: StateTables) -> RoomPlan:
    """``plan`` with what the room was before the attempts that were interrupted."""
    before = summarize_stored_room(was, plan.room_id)
    names = "rows_before", "bytes_before", "longest_chain_before"
    return replace(plan, **{name: getattr(before, name) for name in names})


def _wrong(right: StateTables, now: StateTables) -> str | None:
    """What is wrong with a room, said; None if it resolves as it should."""
    try:
        wrong = find_differing_groups(right, now)
    except InvalidStateGroupsError as error:
        return f"State groups cannot be resolved any more ({error})"
    return f"State group {wrong[0]} resolves to another state, {len(wrong)} do so," if len(wrong) else None


def _put_back(
    wrong: str,
    own: Path | None,
    room: StoredRoom,
    now: StateTables,
    reading: ReaderFactory,
    writer: GroupWriter,
    kept: Sequence[Path],
) -> VerificationError:
    """Put back what this pass wrote, and look again."""
    said = f"{wrong} after compressing {room.room_id}."
    if own is None:
        return VerificationError(f"{said} Nothing was written. {_by_hand(kept)}", kept)
    try:
        restore_groups(undo_file.read(own), room.contents, now, writer, room.known)
    except InvalidStateGroupsError:
        return VerificationError(f"{said} {_by_hand(kept)}", kept)
    with reading() as reader:
        again = reader.contents(room.room_id)
    if _wrong(room.contents, again):
        return VerificationError(f"{said} It could not be put back whole. {_by_hand(kept)}", kept)
    path = undo_file.mark_compared(own)
    return VerificationError(
        f"{said} What was written was put back from {path}. Please report this.", [path], is_put_back=True
    )


def _by_hand(kept: Sequence[Path]) -> str:
    files = " ".join(map(str, kept))
    return (
        f"How its groups were stored is in {files}: stop Synapse, run "
        f"`lakehouse compress undo --repair --yes {files}`, and please report this."
    )
