"""The actions of ``lakehouse compress``: plan, apply, verify, undo, with progress bars and output."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress, TaskID

from synapse_lakehouse.catalogue import Database
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.compression import outcome_log
from synapse_lakehouse.compressor import undo_file, unreferenced_groups
from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.errors import CompressorError, InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.plan_room import RoomPlan
from synapse_lakehouse.compressor.backpressure import Backpressure
from synapse_lakehouse.compressor.compress_room import plan_room
from synapse_lakehouse.compressor.errors import RoomSkippedError
from synapse_lakehouse.compressor.postgres.connection import open_write_connection, require_write_dsn
from synapse_lakehouse.compressor.postgres.room_reader import RoomReader
from synapse_lakehouse.compressor.postgres.session_settings import WRITE_DSN_SETTING
from synapse_lakehouse.compressor.postgres.snapshot_connections import ReaderFactory, connect_readers
from synapse_lakehouse.compressor.postgres.writer import GroupWriter
from synapse_lakehouse.compressor.record_outcome import Outcome, OutcomeRow, compress_and_record, restore_and_record
from synapse_lakehouse.compressor.settings import CompressorSettings
from synapse_lakehouse.compressor.verify import verify_room
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import Connection, get_dsn
from synapse_lakehouse.printable_text import to_printable

_PLANNED: Final = tuple(field.name for field in fields(RoomPlan))
_APPLIED: Final = (
    "room_id", "rows_before", "rows_after", "bytes_before", "bytes_after", "groups_rewritten", "groups_skipped",
    "longest_chain", "chain_before", "chain_after", "read_ms_before", "read_ms_after", "disk_bytes_before",
    "disk_bytes_after", "handed_over", "seconds", "longest_lock_ms", "undo", "skipped",
)  # fmt: skip
_VERIFIED: Final = ("room_id", "groups", "rows", "longest_chain", "compared", "faults")
_MB: Final = 1_000_000
VACUUM_NOTE: Final = (
    "After the next (auto)vacuum the freed space is reused for new rows, so the table stops growing. Only VACUUM FULL "
    "or pg_repack makes the table's files smaller."
)


def plan(settings: Settings, options: CompressorSettings, rooms: Sequence[str], format: output.OutputFormat) -> None:
    """Plan the rooms and write the plans."""
    setting, dsn = get_dsn(settings, Database.STATE)
    with connect_readers(dsn, settings, setting) as open_reader, open_reader() as reader:
        rows = _plan_rooms(reader, rooms, options)
    _write_plans(rows, format)


def _select_rooms(reader: RoomReader, rooms: Sequence[str], options: CompressorSettings) -> tuple[Sequence[str], int]:
    """Return the candidate rooms in order, and the number of rooms to compress, not counting skipped rooms."""
    listed_rooms = list(dict.fromkeys(rooms or options.rooms))
    reader.require_rooms(listed_rooms)
    room_ids = listed_rooms or reader.select_rooms(options, every=True)
    return room_ids, len(listed_rooms) or min(options.number_of_rooms, len(room_ids))


def _plan_rooms(reader: RoomReader, rooms: Sequence[str], options: CompressorSettings) -> list[tuple[Any, ...]]:
    room_ids, number = _select_rooms(reader, rooms, options)
    rows: list[tuple[Any, ...]] = []
    planned = 0
    with output.progress_bar() as bar:
        task = bar.add_task("Planning", total=number)
        for room in room_ids:
            if planned == number:
                break
            rows.append(_plan_room(reader, room, options))
            planned += rows[-1][-1] is None
            bar.update(task, completed=planned)
    return rows


def _plan_room(reader: RoomReader, room_id: str, options: CompressorSettings) -> tuple[Any, ...]:
    try:
        return (*astuple(plan_room(reader.read_room(room_id), options)[1]), None)
    except (InvalidStateGroupsError, RoomSkippedError) as error:
        return room_id, *[None] * (len(_PLANNED) - 1), str(error)


def _write_plans(rows: Sequence[tuple[Any, ...]], format: output.OutputFormat) -> None:
    if format is not output.OutputFormat.TABLE:
        output.write_rows([*_PLANNED, "skipped"], rows, format)
        return
    skipped = [(row[0], row[-1]) for row in rows if row[-1]]
    plans = [RoomPlan(*row[:-1]) for row in rows if not row[-1]]
    heads = ("room_id", "rows", "after", "MB", "after", "groups", "rewrite", "delete", "insert", "needs MB", "chain")
    output.write_rows(heads, [_line(plan) for plan in plans], format)
    before, after = sum(plan.rows_before for plan in plans), sum(plan.rows_after for plan in plans)
    freed = sum(plan.bytes_before - plan.bytes_after for plan in plans)
    if before:
        output.echo(
            f"{before - after} of {before} rows ({1 - after / before:.0%}) and about {freed / _MB:.1f} MB can be "
            "freed. VACUUM makes the space reusable in the database, VACUUM FULL or pg_repack returns it to the disk."
        )
    for room_id, reason in skipped:
        output.echo(f"Skipped {to_printable(room_id)}: {to_printable(reason)}")


def _line(plan: RoomPlan) -> tuple[Any, ...]:
    chain = f"{plan.longest_chain_before} → {plan.longest_chain_after}"
    return (
        plan.room_id, plan.rows_before, plan.rows_after, round(plan.bytes_before / _MB, 1),
        round(plan.bytes_after / _MB, 1), plan.groups, plan.groups_to_rewrite, plan.rows_to_delete, plan.rows_to_insert,
        round(plan.bytes_needed / _MB, 1), chain,
    )  # fmt: skip


def apply(
    settings: Settings, options: CompressorSettings, rooms: Sequence[str], format: output.OutputFormat, *, yes: bool,
    hand_over_unreferenced: bool,
) -> None:  # fmt: skip
    """Compress the rooms; without ``yes``, only write their plans."""
    dsn = require_write_dsn(settings)
    if not yes:
        with connect_readers(dsn, settings, WRITE_DSN_SETTING) as open_reader, open_reader() as reader:
            rows = _plan_rooms(reader, rooms, options)
        _write_plans(rows, format)
        output.echo("This was a dry run: nothing was changed. Add --yes to compress.", err=True)
        return
    folder = undo_file.undo_folder(settings.lake_folder)
    outcomes: list[tuple[Any, ...]] = []
    with outcome_log.open_compression_log(settings, "compress apply") as record:
        try:
            with (
                connect_readers(dsn, settings, WRITE_DSN_SETTING) as open_reader,
                open_write_connection(dsn) as connection,
                output.progress_bar() as bar,
            ):
                if hand_over_unreferenced:
                    unreferenced_groups.require_pending_deletion(connection)
                with open_reader() as reader:
                    room_ids, number = _select_rooms(reader, rooms, options)
                compressed = 0
                for room in room_ids:
                    if compressed == number:
                        break
                    writer = _writer(connection, options, bar, f"{compressed + 1}/{number}")
                    row = compress_and_record(room, options, open_reader, writer, folder, record)
                    compressed += row["outcome"] is not Outcome.SKIPPED
                    outcomes.append(_finish_room(row, open_reader, connection, hands_over=hand_over_unreferenced))
        except BaseException:
            # The rooms before an error or an interruption are complete: show them.
            if outcomes:
                output.write_rows(_APPLIED, outcomes, format)
            raise
        output.write_rows(_APPLIED, outcomes, format)
        if format is output.OutputFormat.TABLE:
            output.echo(VACUUM_NOTE)


def _finish_room(
    row: OutcomeRow, open_reader: ReaderFactory, connection: Connection, *, hands_over: bool
) -> tuple[Any, ...]:
    values = row | {"skipped": row["error"]}
    if row["outcome"] is not Outcome.SKIPPED:
        handed_over = _mark_unreferenced(row["room_id"], open_reader, connection) if hands_over else 0
        values |= {"handed_over": handed_over, "undo": " ".join(row["undo"])}
    return tuple(round(value, 2) if isinstance(value, float) else value for value in map(values.get, _APPLIED))


def _mark_unreferenced(room_id: str, open_reader: ReaderFactory, connection: Connection) -> int:
    try:
        with open_reader() as reader:
            unreferenced = reader.read_room(room_id).unreferenced
            # This function uses a connection that stays open after the reader's PostgreSQL snapshot has ended.
            find_groups_of_events = reader.find_groups_of_events
    except RoomSkippedError:
        # The room was purged in the meantime, with all its groups.
        return 0
    return unreferenced_groups.mark_pending_deletion(connection, unreferenced, find_groups_of_events)


def verify(
    settings: Settings, options: CompressorSettings, rooms: Sequence[str], paths: Sequence[Path],
    format: output.OutputFormat, *, any_strategy: bool,
) -> bool:  # fmt: skip
    """Verify the rooms, write their faults, and return whether all rooms are correct."""
    undo = [undo_file.read(path) for path in paths]
    max_chain = options.max_chain if any_strategy or options.strategy is Strategy.BEST else None
    rows = []
    setting, dsn = get_dsn(settings, Database.STATE)
    with connect_readers(dsn, settings, setting) as open_reader, open_reader() as reader:
        room_ids = [*rooms, *dict.fromkeys(file.room_id for file in undo if file.room_id not in rooms)]
        reader.require_rooms(room_ids)
        for room in _with_progress("Verifying", room_ids or reader.select_rooms(options, all_state=True)):
            contents = reader.read_tables(room)
            verification = verify_room(contents, room, max_chain, [file for file in undo if file.room_id == room])
            rows.append(astuple(verification))
    output.write_rows(_VERIFIED, [(*row[:-1], "; ".join(row[-1])) for row in rows], format)
    return not any(row[-1] for row in rows)


def undo(settings: Settings, paths: Sequence[Path], *, yes: bool, repair: bool) -> None:
    """Restore rooms from undo files, the latest first; with ``repair`` also groups whose state differs now."""
    dsn = require_write_dsn(settings)
    files = sorted((undo_file.read(path) for path in paths), key=lambda file: file.written, reverse=True)
    if not yes:
        for file in files:
            room = to_printable(f"{file.room_id} in {file.database}")
            output.echo(f"Would restore up to {len(file.groups)} state groups of {room}.")
        output.echo("This was a dry run: nothing was changed. Add --yes to restore them.", err=True)
        return
    files_by_room: dict[str, list[undo_file.UndoFile]] = {}
    for file in files:
        files_by_room.setdefault(file.room_id, []).append(file)
    with (
        outcome_log.open_compression_log(settings, "compress undo") as record,
        connect_readers(dsn, settings, WRITE_DSN_SETTING) as open_reader,
        open_write_connection(dsn) as connection,
        output.progress_bar() as bar,
    ):
        _require_same_database(files, connection)
        skipped: list[str] = []
        for room_id, room_files in files_by_room.items():
            writer = _writer(connection, CompressorSettings(), bar, "")
            row = restore_and_record(room_files, open_reader, writer, record, repair=repair)
            if row["outcome"] is Outcome.SKIPPED:
                skipped.append(f"{to_printable(room_id)} was not restored: {row['error']}")
                continue
            output.echo(
                f"Restored {row['groups_rewritten']} state groups of {to_printable(room_id)}, skipped"
                f" {row['groups_skipped']}."
            )
        if skipped:
            raise CompressorError("\n".join(skipped))


def _require_same_database(files: Sequence[undo_file.UndoFile], connection: Connection) -> None:
    for file in files:
        if file.database != connection.info.dbname:
            raise CompressorError(
                f"{file.path} belongs to the database {to_printable(file.database)}, not to {connection.info.dbname}. "
                "Nothing was restored."
            )


def _with_progress(title: str, rooms: Sequence[str]) -> Iterator[str]:
    with output.progress_bar() as bar:
        task = bar.add_task(title, total=len(rooms))
        for room in rooms:
            yield room
            bar.advance(task)


def _writer(connection: Connection, options: CompressorSettings, bar: Progress, number: str) -> GroupWriter:
    name = f"Room {number}".strip()
    task: TaskID = bar.add_task(name, total=None)

    def report(line: str) -> None:
        bar.update(task, description=to_printable(f"{name}, {line}"))

    backpressure = Backpressure(connection, options.busy_sessions, options.lag_bytes, report)
    return GroupWriter(connection, backpressure, lambda work, total: bar.update(task, advance=work, total=total))
