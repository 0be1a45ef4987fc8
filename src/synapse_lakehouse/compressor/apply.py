"""Apply and verify the plan of a DAG run, room by room; ``audit.compression_runs`` records each outcome."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.compressor import undo_file
from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.algorithm.level_sizes import parse_levels
from synapse_lakehouse.compressor.backpressure import Backpressure
from synapse_lakehouse.compressor.errors import NotApprovedError, VerificationError
from synapse_lakehouse.compressor.postgres.connection import open_write_connection, require_write_dsn
from synapse_lakehouse.compressor.postgres.session_settings import WRITE_DSN_SETTING
from synapse_lakehouse.compressor.postgres.snapshot_connections import connect_readers
from synapse_lakehouse.compressor.postgres.writer import GroupWriter
from synapse_lakehouse.compressor.record_outcome import WRITTEN_OUTCOMES, Outcome, OutcomeRow, compress_and_record
from synapse_lakehouse.compressor.settings import CompressorSettings, load_compressor_settings
from synapse_lakehouse.compressor.verify import RoomVerification, verify_room
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_PLAN_TABLE, COMPRESSION_RUNS_TABLE


def read_plan(catalog: Catalog, run: Run) -> list[OutcomeRow]:
    """Return the run's latest rows of ``gold.compression_plan``, largest savings first, skipped rooms last."""
    rows = store.read_run_rows(catalog, COMPRESSION_PLAN_TABLE, run.run_id)
    latest = max((row["planned_at"] for row in rows), default=None)
    return sorted((row for row in rows if row["planned_at"] == latest), key=_row_growth)


def plan_timestamp(planned: Sequence[OutcomeRow]) -> str:
    """Return the time of the plan: it identifies a plan within a run."""
    return str(max(row["planned_at"] for row in planned).isoformat())


def _row_growth(planned: OutcomeRow) -> int:
    return 1 if planned["skipped"] else int(planned["rows_after"] - planned["rows_before"])


def apply_plan(
    settings: Settings, catalog: Catalog, run: Run, report: Callable[[str], None], approved: str | None = None
) -> None:
    """Apply the plan of the run; after an interruption, the remaining rooms.

    :param report: receives progress lines.
    :param approved: ``planned_at`` of the plan that was approved.
    :raises NotApprovedError: when the run has a newer plan; nothing was written.
    :raises VerificationError: when a compression changed the state of a room. No further room is written. Unless the
        room was restored, all later calls fail until an operator repairs it.
    :raises CompressorError, SourceError: when the work cannot continue; written groups are correct and stay.
    """
    _require_no_damaged_room(catalog)
    plan = read_plan(catalog, run)
    if approved and plan and plan_timestamp(plan) != approved:
        raise NotApprovedError(
            f"The approved plan was made at {approved}, but this run has a newer plan. Nothing was written. Clear the "
            "task show_plan and its downstream tasks, and approve the new plan."
        )
    dsn, settings_now, folder = (
        require_write_dsn(settings),
        load_compressor_settings(settings),
        undo_file.undo_folder(settings.lake_folder),
    )
    record = partial(_record, catalog, run)
    recorded = store.read_run_rows(catalog, COMPRESSION_RUNS_TABLE, run.run_id)
    finished_rooms = {row["room_id"]: row["finished_at"] for row in recorded if row["outcome"] in WRITTEN_OUTCOMES}
    with connect_readers(dsn, settings, WRITE_DSN_SETTING) as open_reader, open_write_connection(dsn) as connection:
        for planned in plan:
            finished_at = finished_rooms.get(planned["room_id"], planned["planned_at"])
            if not planned["groups_to_rewrite"] or finished_at > planned["planned_at"]:
                continue
            room_settings = _as_planned(settings_now, planned)
            backpressure = Backpressure(connection, room_settings.busy_sessions, room_settings.lag_bytes, report)
            writer = GroupWriter(connection, backpressure, lambda work, total: None)
            row = compress_and_record(planned["room_id"], room_settings, open_reader, writer, folder, record)
            report(f"{planned['room_id']}: {row['outcome']}{_format_details(row)}")


def verify_run(settings: Settings, catalog: Catalog, run: Run) -> list[RoomVerification]:
    """Compare each room that the run wrote with its undo files, and return the results.

    New faults, and rooms that were repaired, are recorded in ``audit.compression_runs``.
    An unreadable undo file is returned as a fault of its room; it does not change the recorded outcome.

    :raises CompressorError, SourceError: when the database cannot be read.
    """
    verifications: list[RoomVerification] = []
    with connect_readers(require_write_dsn(settings), settings, WRITE_DSN_SETTING) as open_reader:
        for row in store.read_run_rows(catalog, COMPRESSION_RUNS_TABLE, run.run_id):
            if row["outcome"] not in (*WRITTEN_OUTCOMES, Outcome.FAULTY):
                continue
            undo_files, unreadable = _read_undo_files(row["undo"] or ())
            with open_reader() as reader:
                contents = reader.read_tables(row["room_id"])
            # The room may have grown since the compression, so its chains have no limit here.
            verification = verify_room(contents, row["room_id"], None, undo_files)
            was_faulty = row["outcome"] == Outcome.FAULTY
            if verification.faults or (was_faulty and not unreadable):
                repaired = Outcome.RESTORED if row["rows_after"] is None else Outcome.COMPRESSED
                outcome = Outcome.FAULTY if verification.faults else repaired
                changes = {"outcome": outcome, "error": "; ".join(verification.faults) or None}
                _record(catalog, run, row | changes | {"finished_at": datetime.now(UTC)})
            verifications.append(replace(verification, faults=verification.faults + unreadable))
    return verifications


def _read_undo_files(files: Sequence[str]) -> tuple[list[undo_file.UndoFile], tuple[str, ...]]:
    """Return the readable undo files, and a fault for each other file: a lost file does not stop the verification."""
    undo_files, unreadable = [], []
    for file in files:
        try:
            undo_files.append(undo_file.read(Path(file)))
        except CompressorError as error:
            unreadable.append(f"the room's states were not compared with this undo file: {error}")
    return undo_files, tuple(unreadable)


def _require_no_damaged_room(catalog: Catalog) -> None:
    """Refuse to compress while the latest outcome of any room, by a run or a command, is ``faulty``."""
    outcomes = catalog.load_table(COMPRESSION_RUNS_TABLE).scan(
        selected_fields=("room_id", "outcome", "error", "undo", "finished_at")
    )
    latest = {
        row["room_id"]: row
        for row in outcomes.to_arrow().sort_by("finished_at").to_pylist()
        if row["outcome"] not in (Outcome.SKIPPED, Outcome.STOPPED)
    }
    for room_id, row in latest.items():
        if row["outcome"] == Outcome.FAULTY:
            files = row["undo"] or []
            raise VerificationError(
                f"The state of {room_id} changed when the room was compressed ({row['error']}), so no room is "
                f"compressed. Restore the room: `lakehouse compress undo --repair --yes {' '.join(files)}`. If the "
                "room is correct now, clear the task verify of the run that reported the fault.",
                [Path(file) for file in files],
            )


def _record(catalog: Catalog, run: Run, row: OutcomeRow) -> None:
    store.append_audit_rows(catalog, COMPRESSION_RUNS_TABLE, [row], run)


def _as_planned(settings: CompressorSettings, planned: OutcomeRow) -> CompressorSettings:
    """Return settings with the layout of the approved plan, even if the settings were changed later."""
    layout = {name: planned[name] for name in ("chunk_size", "max_chain")}
    levels = parse_levels(planned["default_levels"])
    return settings.model_copy(update=layout | {"strategy": Strategy(planned["strategy"]), "default_levels": levels})


def _format_details(row: OutcomeRow) -> str:
    if row["outcome"] == Outcome.SKIPPED:
        return f", {row['error']}"
    rows = f", {row['rows_before']} rows before, {row['rows_after']} rows after, {row['seconds']:.1f} s"
    if not row["groups_sampled"]:
        return rows
    return f"{rows}; reading a state took {row['read_ms_before']:.1f} ms before and takes {row['read_ms_after']:.1f} ms"
