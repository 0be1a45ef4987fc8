"""Carry out what a run planned from the lake, room by room; ``audit.compression_runs`` says what became of each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.compressor import undo_file
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.algorithm.level_sizes import parse_levels
from synapse_lakehouse.compressor.algorithm.settings import CompressorSettings, Strategy, load_compressor_settings
from synapse_lakehouse.compressor.backpressure import Backpressure
from synapse_lakehouse.compressor.errors import NotApprovedError, VerificationError
from synapse_lakehouse.compressor.outcomes import WRITTEN_OUTCOMES, Outcome, OutcomeRow, compress_and_record
from synapse_lakehouse.compressor.postgres.connection import open_write_connection, require_write_dsn
from synapse_lakehouse.compressor.postgres.session import WRITE_DSN_SETTING
from synapse_lakehouse.compressor.postgres.snapshot_reader import connect_readers
from synapse_lakehouse.compressor.postgres.writer import GroupWriter
from synapse_lakehouse.compressor.verify import RoomVerification, verify_room
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_PLAN_TABLE, COMPRESSION_RUNS_TABLE


def read_plan(catalog: Catalog, run: Run) -> list[OutcomeRow]:
    """What the run planned last: rows of ``gold.compression_plan``, the most to win first, those skipped at the end."""
    rows = store.read_run_rows(catalog, COMPRESSION_PLAN_TABLE, run.run_id)
    last = max((row["planned_at"] for row in rows), default=None)
    return sorted((row for row in rows if row["planned_at"] == last), key=_won)


def plan_timestamp(planned: Sequence[OutcomeRow]) -> str:
    """When that was, which tells one plan of a run from another."""
    return str(max(row["planned_at"] for row in planned).isoformat())


def _won(planned: OutcomeRow) -> int:
    return 1 if planned["skipped"] else int(planned["rows_after"] - planned["rows_before"])


def apply_plan(
    settings: Settings, catalog: Catalog, run: Run, tell: Callable[[str], None], approved: str | None = None
) -> None:
    """Compress the rooms as the run planned it; again after an interruption, those that are left.

    :param approved: ``planned_at`` of the plan that was approved.
    :raises NotApprovedError: when the run planned anew since; nothing was written.
    :raises VerificationError: when a room does not resolve as before; nothing is written while one is known to
        be like that.
    :raises CompressorError, SourceError: when it cannot go on; all that was written is right and stays.
    """
    _require_none_faulty(catalog)
    plan = read_plan(catalog, run)
    if approved and plan and plan_timestamp(plan) != approved:
        raise NotApprovedError(
            f"The plan that was approved is of {approved}; this run has planned anew since. Nothing was written. Clear "
            "the task show_plan and what comes after it, so that somebody sees the new plan."
        )
    dsn, now, folder = (
        require_write_dsn(settings),
        load_compressor_settings(settings),
        undo_file.undo_folder(settings.lakehouse_home),
    )
    record = partial(_record, catalog, run)
    recorded = store.read_run_rows(catalog, COMPRESSION_RUNS_TABLE, run.run_id)
    done = {row["room_id"]: row["finished_at"] for row in recorded if row["outcome"] in WRITTEN_OUTCOMES}
    with connect_readers(dsn, settings, WRITE_DSN_SETTING) as reading, open_write_connection(dsn) as connection:
        for planned in plan:
            since = done.get(planned["room_id"], planned["planned_at"])
            if not planned["groups_to_rewrite"] or since > planned["planned_at"]:
                continue
            wanted = _as_planned(now, planned)
            load = Backpressure(connection, wanted.busy_sessions, wanted.lag_bytes, tell)
            writer = GroupWriter(connection, load, lambda work, total: None)
            became = compress_and_record(planned["room_id"], wanted, reading, writer, folder, record)
            tell(f"{planned['room_id']}: {became['outcome']}{_numbers(became)}")


def verify_run(settings: Settings, catalog: Catalog, run: Run) -> list[RoomVerification]:
    """Hold every room that the run wrote against what it was before; record what is wrong, and what is right again.

    A room whose undo file cannot be read has that among its faults, and stays recorded as it was.

    :raises CompressorError, SourceError: when the database cannot be read.
    """
    found: list[RoomVerification] = []
    with connect_readers(require_write_dsn(settings), settings, WRITE_DSN_SETTING) as reading:
        for row in store.read_run_rows(catalog, COMPRESSION_RUNS_TABLE, run.run_id):
            if row["outcome"] not in (*WRITTEN_OUTCOMES, Outcome.FAULTY):
                continue
            kept, unread = _readable(row["undo"] or ())
            with reading() as reader:
                contents = reader.contents(row["room_id"])
            # Chains may have grown since, which damages nothing.
            one = verify_room(contents, row["room_id"], None, kept)
            was_faulty = row["outcome"] == Outcome.FAULTY
            if one.faults or (was_faulty and not unread):
                is_right = Outcome.PUT_BACK if row["rows_after"] is None else Outcome.COMPRESSED
                outcome = Outcome.FAULTY if one.faults else is_right
                became = {"outcome": outcome, "error": "; ".join(one.faults) or None}
                _record(catalog, run, row | became | {"finished_at": datetime.now(UTC)})
            found.append(replace(one, faults=one.faults + unread))
    return found


def _readable(files: Sequence[str]) -> tuple[list[undo_file.UndoFile], tuple[str, ...]]:
    """Undo files, and what is said of those that cannot be read: one that is lost keeps no other room from its turn."""
    kept, unread = [], []
    for file in files:
        try:
            kept.append(undo_file.read(Path(file)))
        except CompressorError as error:
            unread.append(f"not compared with what it was: {error}")
    return kept, tuple(unread)


def _require_none_faulty(catalog: Catalog) -> None:
    """Whatever was done to a room last, by any run or by hand, must have left it right."""
    told = catalog.load_table(COMPRESSION_RUNS_TABLE).scan(
        selected_fields=("room_id", "outcome", "error", "undo", "finished_at")
    )
    last = {
        row["room_id"]: row
        for row in told.to_arrow().sort_by("finished_at").to_pylist()
        if row["outcome"] not in (Outcome.LEFT, Outcome.STOPPED)
    }
    for room_id, row in last.items():
        if row["outcome"] == Outcome.FAULTY:
            files = row["undo"] or []
            raise VerificationError(
                f"{room_id} does not resolve as before it was compressed ({row['error']}), so nothing is compressed. "
                f"Put it back: `lakehouse compress undo --repair --yes {' '.join(files)}`; if it is right by now, "
                "clear the task verify of the run that found it.",
                [Path(one) for one in files],
            )


def _record(catalog: Catalog, run: Run, row: OutcomeRow) -> None:
    store.append_audit_rows(catalog, COMPRESSION_RUNS_TABLE, [row], run)


def _as_planned(wanted: CompressorSettings, planned: OutcomeRow) -> CompressorSettings:
    """What was approved is what is done, whatever the settings say by now."""
    how = {name: planned[name] for name in ("chunk_size", "max_chain")}
    levels = parse_levels(planned["default_levels"])
    return wanted.model_copy(update=how | {"strategy": Strategy(planned["strategy"]), "default_levels": levels})


def _numbers(became: OutcomeRow) -> str:
    if became["outcome"] == Outcome.LEFT:
        return f", {became['error']}"
    rows = f", {became['rows_before']} rows are now {became['rows_after']}, in {became['seconds']:.1f} s"
    if not became["groups_sampled"]:
        return rows
    return f"{rows}; a state takes {became['read_ms_after']:.1f} ms to read, {became['read_ms_before']:.1f} ms before"
