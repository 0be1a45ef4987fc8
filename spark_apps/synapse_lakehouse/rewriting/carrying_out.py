"""Carry out what a run planned from the lake, room by room; ``audit.compression_runs`` says what became of each."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
from pyiceberg.catalog import Catalog

from synapse_lakehouse.compression.errors import BadGroups, CompressorError
from synapse_lakehouse.compression.level import parse_levels
from synapse_lakehouse.compression.settings import CompressorSettings, Strategy, configured
from synapse_lakehouse.lake import audit
from synapse_lakehouse.lake.catalog import PLAN
from synapse_lakehouse.rewriting import undo
from synapse_lakehouse.rewriting.connection import write_dsn, writing
from synapse_lakehouse.rewriting.disk import require_disk
from synapse_lakehouse.rewriting.errors import Differs, RoomLeft, explained
from synapse_lakehouse.rewriting.load import Load
from synapse_lakehouse.rewriting.room import compress
from synapse_lakehouse.rewriting.session import SETTING
from synapse_lakehouse.rewriting.snapshots import Reading, source
from synapse_lakehouse.rewriting.verifying import Verified, verified
from synapse_lakehouse.rewriting.writing import IN_THE_WAY, Writer
from synapse_lakehouse.run import Run
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source.errors import SourceError

RUNS: Final = "audit.compression_runs"
SYNAPSES_CHAIN: Final = 100
"""Synapse hangs new groups on a chain until it is so long."""

Row = Mapping[str, Any]


class Outcome(StrEnum):
    """What became of a room that a run was to compress."""

    COMPRESSED = "compressed"
    PARTLY = "partly"
    """Somebody held locks for long: what was written is right, and the rest is left to another run."""
    LEFT = "left"
    """Nothing was written."""
    STOPPED = "stopped"
    """What was written is right; the run ended here."""
    PUT_BACK = "put_back"
    """It did not read as before, and is stored as it was."""
    FAULTY = "faulty"
    """Found to be wrong when the run was over."""


WRITTEN: Final = (Outcome.COMPRESSED, Outcome.PARTLY)


def planned_by(catalog: Catalog, run: Run) -> list[Row]:
    """What the run planned last: rows of ``gold.compression_plan``, the most to win first, those skipped at the end."""
    rows = audit.of_run(catalog, PLAN, run.run_id)
    last = max((row["planned_at"] for row in rows), default=None)
    return sorted((row for row in rows if row["planned_at"] == last), key=_won)


def _won(planned: Row) -> int:
    return 1 if planned["skipped"] else int(planned["rows_after"] - planned["rows_before"])


def carry_out(settings: Settings, catalog: Catalog, run: Run, tell: Callable[[str], None]) -> None:
    """Compress the rooms as the run planned it; again after an interruption, those that are left.

    :raises CompressorError, SourceError: when it cannot go on; all that was written is right and stays.
    """
    dsn, now = write_dsn(settings), configured(settings)
    recorded = audit.of_run(catalog, RUNS, run.run_id)
    done = {row["room_id"]: row["finished_at"] for row in recorded if row["outcome"] in WRITTEN}
    with source(dsn, settings, SETTING) as reading, writing(dsn) as connection:
        for planned in planned_by(catalog, run):
            since = done.get(planned["room_id"], planned["planned_at"])
            if not planned["groups_to_rewrite"] or since > planned["planned_at"]:
                continue
            wanted = _as_planned(now, planned)
            load = Load(connection, wanted.busy_sessions, wanted.lag_bytes, tell)
            writer = Writer(connection, load, lambda work, total: None)
            row = {"room_id": planned["room_id"], **wanted.how()}
            try:
                became = _compressed(planned["room_id"], wanted, reading, writer, undo.folder(settings.lakehouse_home))
            except (CompressorError, SourceError, psycopg.Error) as error:
                _record(catalog, run, row | _stopped(error))
                raise
            _record(catalog, run, row | became)
            tell(f"{planned['room_id']}: {became['outcome']}{_numbers(became)}")


def verify(settings: Settings, catalog: Catalog, run: Run) -> list[Verified]:
    """Hold every room that the run wrote against what it was before, and record those that something is wrong with.

    :raises CompressorError, SourceError: when the database cannot be read.
    """
    found: list[Verified] = []
    with source(write_dsn(settings), settings, SETTING) as reading:
        for row in audit.of_run(catalog, RUNS, run.run_id):
            if row["outcome"] not in WRITTEN:
                continue
            # Groups were added meanwhile; only those of a room that was finished must be as was asked.
            is_bounded = row["strategy"] == Strategy.BEST and row["outcome"] == Outcome.COMPRESSED
            longest = max(row["max_chain"], SYNAPSES_CHAIN) if is_bounded else None
            kept = [undo.read(Path(path)) for path in row["undo"] or ()]
            with reading() as reader:
                contents = reader.contents(row["room_id"])
            one = verified(contents, row["room_id"], longest, kept)
            if one.faults:
                _record(catalog, run, row | {"outcome": Outcome.FAULTY, "error": "; ".join(one.faults)})
            found.append(one)
    return found


def _compressed(
    room_id: str, wanted: CompressorSettings, reading: Reading, writer: Writer, folder: Path
) -> dict[str, Any]:
    """Columns of ``audit.compression_runs``."""
    require = partial(require_disk, writer.connection)
    try:
        done = compress(room_id, wanted, reading, writer, folder, writer.connection.info.dbname, require)
    except (BadGroups, RoomLeft) as error:
        return {"outcome": Outcome.LEFT, "error": str(error)}
    return {
        "outcome": Outcome.PARTLY if writer.gave_up else Outcome.COMPRESSED,
        "error": IN_THE_WAY if writer.gave_up else None,
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


def _stopped(error: Exception) -> dict[str, Any]:
    said = explained(error) if isinstance(error, psycopg.Error) else error
    return {"outcome": Outcome.PUT_BACK if isinstance(error, Differs) else Outcome.STOPPED, "error": str(said)}


def _record(catalog: Catalog, run: Run, row: dict[str, Any]) -> None:
    audit.append(catalog, RUNS, [row | {"finished_at": datetime.now(UTC)}], run)


def _as_planned(wanted: CompressorSettings, planned: Row) -> CompressorSettings:
    """What was approved is what is done, whatever the settings say by now."""
    how = {name: planned[name] for name in ("chunk_size", "max_chain")}
    levels = parse_levels(planned["default_levels"])
    return wanted.model_copy(update=how | {"strategy": Strategy(planned["strategy"]), "default_levels": levels})


def _numbers(became: Row) -> str:
    if became["outcome"] == Outcome.LEFT:
        return f", {became['error']}"
    rows = f", {became['rows_before']} rows are now {became['rows_after']}, in {became['seconds']:.1f} s"
    if not became["groups_sampled"]:
        return rows
    return f"{rows}; a state takes {became['read_ms_after']:.1f} ms to read, {became['read_ms_before']:.1f} ms before"
