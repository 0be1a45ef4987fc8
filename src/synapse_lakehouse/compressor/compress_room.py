"""Compress a room: read, plan, write the undo file, apply, read again and compare."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from synapse_lakehouse.compressor import undo_file
from synapse_lakehouse.compressor.algorithm.compare_states import find_differing_groups
from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.encode_tables import StateTables
from synapse_lakehouse.compressor.algorithm.errors import CompressorError, InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.plan_room import (
    PlannedGroups,
    RoomPlan,
    estimate_room,
    summarize_stored_room,
)
from synapse_lakehouse.compressor.algorithm.row_changes import compute_changes
from synapse_lakehouse.compressor.errors import RoomSkippedError, VerificationError
from synapse_lakehouse.compressor.postgres.room_reader import StoredRoom
from synapse_lakehouse.compressor.postgres.snapshot_connections import ReaderFactory
from synapse_lakehouse.compressor.postgres.writer import GroupWriter
from synapse_lakehouse.compressor.progress_tracker import ProgressTracker
from synapse_lakehouse.compressor.read_cost import ReadCost, cost_columns, sample_groups
from synapse_lakehouse.compressor.restore import restore_groups
from synapse_lakehouse.compressor.settings import CompressorSettings
from synapse_lakehouse.compressor.verify import RoomVerification, verify_room
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition

_MAXIMUM_PASSES: Final = 3


def plan_room(room: StoredRoom, settings: CompressorSettings) -> tuple[PlannedGroups, RoomPlan]:
    """Plan the compression of a room whose state groups were read.

    :raises InvalidStateGroupsError: for groups that Synapse cannot have stored.
    :raises RoomSkippedError: for saved levels that no compressor can have written.
    """
    is_best = settings.strategy is Strategy.BEST
    if not is_best:
        room.saved.require_levels()
    return estimate_room(
        room.contents, room.room_id, settings.layout, None if is_best else room.saved.progress,
        excluded=room.unreferenced.tolist() if is_best else (),
        untouchable=room.untouchable.tolist() if is_best else (),
        unfinished=() if room.saved.unfinished_chunk_end is None else (room.saved.unfinished_chunk_end,),
    )  # fmt: skip


def compress_room(
    room_id: str, settings: CompressorSettings, open_reader: ReaderFactory, writer: GroupWriter, undo_folder: Path,
    database: str, require: Callable[[RoomPlan, Path], None] = lambda plan, folder: None,
) -> dict[str, Any]:  # fmt: skip
    """Compress one room of the database ``database``.

    A room that grows in the meantime, or has groups that cannot be rewritten, may end with a chain that is too long. In
    this case, the room is compressed again, in at most three passes in total.

    :param require: raises ``RoomSkippedError`` for a plan that must not be applied.
    :returns: columns of ``audit.compression_runs`` from ``rows_before`` on.
    :raises InvalidStateGroupsError, RoomSkippedError: when the room cannot be compressed; nothing was written.
    :raises CompressorError: when the undo file cannot be written, or an undo file belongs to another history of the
        database; nothing more was written.
    :raises CompressorRunningError: when another compressor changed the progress of the room; written groups stay.
    :raises VerificationError: when a state changed; ``is_restored`` is set if the written groups were restored.
    """
    interrupted = undo_file.find_uncompared_undo_files(undo_folder, room_id, database)
    compression = _RoomCompression(room_id, settings, open_reader, writer, undo_folder, database, interrupted)
    compression.undo_paths += [file.path for file in interrupted]
    for _ in range(_MAXIMUM_PASSES):
        try:
            with open_reader() as reader:
                room, position = reader.read_room(room_id), reader.read_wal_position()
            planned, plan = plan_room(room, settings)
        except (InvalidStateGroupsError, RoomSkippedError):
            # The states were compared after the previous pass, so another process changed the room since then.
            if compression.plan:
                break
            raise
        if not compression.apply(room, position, planned, plan, require):
            break
    return compression.columns()


@dataclass
class _RoomCompression:
    """The passes over one room."""

    room_id: str
    settings: CompressorSettings
    open_reader: ReaderFactory
    writer: GroupWriter
    undo_folder: Path
    database: str
    interrupted: Sequence[undo_file.UndoFile]
    """Undo files of interrupted compressions of the room, the latest first."""
    undo_paths: list[Path] = field(default_factory=list)
    plan: RoomPlan | None = None
    """The plan of the first pass."""
    groups_written: int = 0
    groups_skipped: int = 0
    """Planned groups that were not rewritten, because they were locked, pending deletion or changed meanwhile."""
    cost_before: ReadCost | None = None
    """Cost of reading some of the room's states; None if no group had to be written."""
    cost_after: ReadCost | None = None
    disk_before: int = 0
    """Bytes of the state of all rooms on disk."""
    disk_after: int = 0
    verification: RoomVerification | None = None
    _began: float = field(default_factory=time.monotonic)

    def apply(
        self, room: StoredRoom, position: WalPosition, planned: PlannedGroups, plan: RoomPlan,
        require: Callable[[RoomPlan, Path], None],
    ) -> bool:  # fmt: skip
        """Write one pass, compare, and return whether another pass may shorten a chain."""
        if self.interrupted and not self.plan:
            before = _require_state_before(room.contents, self.interrupted, position)
            plan = _plan_since(plan, before)
        changes = compute_changes(planned)
        progress = ProgressTracker(room, self.settings.strategy, planned.steps, changes)
        del planned
        undo_file.create_folder(self.undo_folder)
        require(plan, self.undo_folder)
        if not self.plan:
            self.plan = plan
            self._measure_before(room, has_changes=len(changes) > 0)
        undo_path = None
        if len(changes):
            undo_path = undo_file.write(
                self.undo_folder, self.room_id, self.database, position, changes.ids, room.contents
            )
            self.undo_paths.append(undo_path)
        skipped = len(self.writer.write(changes, room.group_rooms, progress.save))
        self.groups_written += len(changes) - skipped
        self.groups_skipped += skipped
        with self.open_reader() as reader:
            now = reader.read_tables(self.room_id)
            self.cost_after = reader.measure_read_cost(self.cost_before.groups) if self.cost_before else None
            self.disk_after = reader.measure_disk_bytes()
        if difference := _describe_difference(room.contents, now):
            raise self._restore(difference, undo_path, room, now)
        self.undo_paths = [undo_file.mark_compared(path) for path in self.undo_paths]
        self.verification = verify_room(now, self.room_id, self.settings.max_chain)
        may_get_shorter = skipped or now.groups.num_rows > room.contents.groups.num_rows
        return bool(
            self.settings.strategy is Strategy.BEST
            and not self.writer.gave_up_on_locks
            and self.verification.faults
            and may_get_shorter
        )

    def columns(self) -> dict[str, Any]:
        assert self.plan
        assert self.verification
        return {
            "rows_before": self.plan.rows_before,
            "rows_after": self.verification.rows,
            "bytes_before": self.plan.bytes_before,
            "bytes_after": self.plan.bytes_after,
            "groups_rewritten": self.groups_written,
            "groups_skipped": self.groups_skipped,
            "longest_chain": self.verification.longest_chain,
            "seconds": time.monotonic() - self._began,
            "longest_lock_ms": 1000 * self.writer.pace.longest,
            "undo": [str(path) for path in self.undo_paths],
            **cost_columns(self.cost_before, self.cost_after, (self.disk_before, self.disk_after)),
        }

    def _measure_before(self, room: StoredRoom, *, has_changes: bool) -> None:
        with self.open_reader() as reader:
            self.disk_before = reader.measure_disk_bytes()
            self.cost_before = reader.measure_read_cost(sample_groups(room.ids)) if has_changes else None

    def _restore(
        self, difference: str, undo_path: Path | None, room: StoredRoom, now: StateTables
    ) -> VerificationError:
        """Restore the groups that this pass wrote and compare again; return the error to raise."""
        reason = f"{difference} after the compression of {self.room_id}."
        if undo_path is None:
            return VerificationError(
                f"{reason} Nothing was written. {_manual_repair(self.undo_paths)}", self.undo_paths
            )
        try:
            restore_groups(undo_file.read(undo_path), room.contents, now, self.writer, room.group_rooms)
        except InvalidStateGroupsError:
            return VerificationError(f"{reason} {_manual_repair(self.undo_paths)}", self.undo_paths)
        with self.open_reader() as reader:
            restored = reader.read_tables(self.room_id)
        if _describe_difference(room.contents, restored):
            message = f"{reason} The room could not be restored completely. {_manual_repair(self.undo_paths)}"
            return VerificationError(message, self.undo_paths)
        path = undo_file.mark_compared(undo_path)
        message = f"{reason} The written groups were restored from {path}. Please report this."
        return VerificationError(message, [path], is_restored=True)


def _require_state_before(
    now: StateTables, interrupted: Sequence[undo_file.UndoFile], position: WalPosition
) -> StateTables:
    """Return the room as it was before the interrupted compressions; require that no state changed since."""
    room_id, paths = interrupted[0].room_id, [file.path for file in interrupted]
    before = undo_file.contents_before(interrupted, now)
    if not (difference := _describe_difference(before, now)):
        return before
    if any(file.may_be_of_other_groups(position) for file in interrupted):
        # The files may belong to other groups with the same IDs, so they cannot repair the room.
        raise CompressorError(
            f"A compression of {room_id} was interrupted, and the database was restored or failed over later. "
            "Since then, Synapse may have given the same IDs to other state groups. So these undo files may describe "
            f"other groups: {' '.join(map(str, paths))}. Nothing was written. Move "
            "these files away and run the command again."
        )
    raise VerificationError(
        f"{difference} since a compression of {room_id} was interrupted. Nothing more was written. "
        f"{_manual_repair(paths)}",
        paths,
    )


def _plan_since(plan: RoomPlan, before: StateTables) -> RoomPlan:
    """Return ``plan`` with other values of ``rows_before``, ``bytes_before`` and ``longest_chain_before``.

    These values are those of ``before``, the room as it was before the interrupted compressions.
    """
    summary = summarize_stored_room(before, plan.room_id)
    names = "rows_before", "bytes_before", "longest_chain_before"
    return replace(plan, **{name: getattr(summary, name) for name in names})


def _describe_difference(expected: StateTables, now: StateTables) -> str | None:
    """Describe how the states of a room differ; None if they are equal."""
    try:
        differing = find_differing_groups(expected, now)
    except InvalidStateGroupsError as error:
        return f"State groups cannot be resolved any more ({error})"
    return f"{len(differing)} state groups, such as {differing[0]}, have another state" if len(differing) else None


def _manual_repair(paths: Sequence[Path]) -> str:
    files = " ".join(map(str, paths))
    return (
        f"The undo files {files} contain the room's former groups. Stop Synapse, run "
        f"`lakehouse compress undo --repair --yes {files}`, and please report this."
    )
