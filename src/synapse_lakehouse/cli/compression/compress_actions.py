"""What ``lakehouse compress`` does with its options: read, show how far it is, write rows."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress, TaskID

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.compression import compression_log
from synapse_lakehouse.compressor import undo_file as undo_files
from synapse_lakehouse.compressor import unreferenced_groups
from synapse_lakehouse.compressor.algorithm.errors import CompressorError, InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.estimate import RoomPlan
from synapse_lakehouse.compressor.algorithm.layout import Strategy
from synapse_lakehouse.compressor.backpressure import Backpressure
from synapse_lakehouse.compressor.compress_room import plan_room
from synapse_lakehouse.compressor.errors import RoomSkippedError
from synapse_lakehouse.compressor.outcomes import Outcome, OutcomeRow, compress_and_record, restore_and_record
from synapse_lakehouse.compressor.postgres.connection import open_write_connection, require_write_dsn
from synapse_lakehouse.compressor.postgres.room_reader import RoomReader
from synapse_lakehouse.compressor.postgres.session import WRITE_DSN_SETTING
from synapse_lakehouse.compressor.postgres.snapshot_reader import ReaderFactory, connect_readers
from synapse_lakehouse.compressor.postgres.writer import GroupWriter
from synapse_lakehouse.compressor.settings import CompressorSettings
from synapse_lakehouse.compressor.verify import verify_room
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.printable_text import to_printable

_READ: Final = "SYNAPSE_DSN"
_PLANNED: Final = tuple(field.name for field in fields(RoomPlan))
_APPLIED: Final = (
    "room_id", "rows_before", "rows_after", "bytes_before", "bytes_after", "groups_rewritten", "groups_left",
    "longest_chain", "chain_before", "chain_after", "read_ms_before", "read_ms_after", "disk_bytes_before",
    "disk_bytes_after", "handed_over", "seconds", "longest_lock_ms", "undo", "skipped",
)  # fmt: skip
_VERIFIED: Final = ("room_id", "groups", "rows", "longest_chain", "compared", "faults")
_MB: Final = 1_000_000
VACUUM_NOTE: Final = (
    "What was given back is room for new rows once VACUUM has been there, as autovacuum will be: the table stops "
    "growing. Its files become smaller by VACUUM FULL or pg_repack alone."
)


def plan(settings: Settings, wanted: CompressorSettings, rooms: Sequence[str], format: output.OutputFormat) -> None:
    """Write the plan of each room."""
    with connect_readers(str(settings.synapse_dsn), settings, _READ) as reading, reading() as reader:
        rows = _plans(reader, rooms, wanted)
    _write_plans(rows, format)


def _chosen(reader: RoomReader, rooms: Sequence[str], wanted: CompressorSettings) -> tuple[Sequence[str], int]:
    """Rooms in the order in which to take them, and how many: one that has to be left takes no other's place."""
    named = list(dict.fromkeys(rooms or wanted.rooms))
    reader.require_rooms(named)
    chosen = named or reader.select_rooms(wanted, every=True)
    return chosen, len(named) or min(wanted.number_of_rooms, len(chosen))


def _plans(reader: RoomReader, rooms: Sequence[str], wanted: CompressorSettings) -> list[tuple[Any, ...]]:
    chosen, number = _chosen(reader, rooms, wanted)
    rows: list[tuple[Any, ...]] = []
    readable = 0
    with output.progress_bar() as bar:
        task = bar.add_task("Planning", total=number)
        for room in chosen:
            if readable == number:
                break
            rows.append(_plan(reader, room, wanted))
            readable += rows[-1][-1] is None
            bar.update(task, completed=readable)
    return rows


def _plan(reader: RoomReader, room_id: str, wanted: CompressorSettings) -> tuple[Any, ...]:
    try:
        return (*astuple(plan_room(reader.read_room(room_id), wanted)[1]), None)
    except (InvalidStateGroupsError, RoomSkippedError) as error:
        return room_id, *[None] * (len(_PLANNED) - 1), str(error)


def _write_plans(rows: Sequence[tuple[Any, ...]], format: output.OutputFormat) -> None:
    if format is not output.OutputFormat.TABLE:
        output.write_rows([*_PLANNED, "skipped"], rows, format)
        return
    skipped = [(row[0], row[-1]) for row in rows if row[-1]]
    plans = [RoomPlan(*row[:-1]) for row in rows if not row[-1]]
    heads = ("room_id", "rows", "after", "MB", "after", "groups", "rewrite", "delete", "insert", "needs MB", "chain")
    output.write_rows(heads, [_line(one) for one in plans], format)
    before, after = sum(one.rows_before for one in plans), sum(one.rows_after for one in plans)
    freed = sum(one.bytes_before - one.bytes_after for one in plans)
    if before:
        output.echo(
            f"{before - after} of {before} rows ({1 - after / before:.0%}) and about {freed / _MB:.1f} MB would be "
            "given back: by VACUUM to the database, by VACUUM FULL or pg_repack to the disk."
        )
    for room_id, why in skipped:
        output.echo(f"Skipped {to_printable(room_id)}: {to_printable(why)}")


def _line(one: RoomPlan) -> tuple[Any, ...]:
    chain = f"{one.longest_chain_before} → {one.longest_chain_after}"
    return (
        one.room_id, one.rows_before, one.rows_after, round(one.bytes_before / _MB, 1), round(one.bytes_after / _MB, 1),
        one.groups, one.groups_to_rewrite, one.rows_to_delete, one.rows_to_insert, round(one.bytes_needed / _MB, 1),
        chain,
    )  # fmt: skip


def apply(
    settings: Settings, wanted: CompressorSettings, rooms: Sequence[str], format: output.OutputFormat, *, yes: bool,
    hand_over_unreferenced: bool,
) -> None:  # fmt: skip
    """Compress each room, or write the plan of each."""
    dsn = require_write_dsn(settings)
    if not yes:
        with connect_readers(dsn, settings, WRITE_DSN_SETTING) as reading, reading() as reader:
            rows = _plans(reader, rooms, wanted)
        _write_plans(rows, format)
        output.echo("This is a dry run, and nothing was changed. Add --yes to compress.", err=True)
        return
    folder = undo_files.undo_folder(settings.lakehouse_home)
    outcomes: list[tuple[Any, ...]] = []
    with compression_log.open_compression_log(settings, "compress apply") as record:
        try:
            with (
                connect_readers(dsn, settings, WRITE_DSN_SETTING) as reading,
                open_write_connection(dsn) as connection,
                output.progress_bar() as bar,
            ):
                with reading() as reader:
                    chosen, number = _chosen(reader, rooms, wanted)
                done = 0
                for room in chosen:
                    if done == number:
                        break
                    writer = _writer(connection, wanted, bar, f"{done + 1}/{number}")
                    row = compress_and_record(room, wanted, reading, writer, folder, record)
                    done += row["outcome"] is not Outcome.LEFT
                    outcomes.append(_applied(row, reading, connection, hand_over=hand_over_unreferenced))
        except BaseException:
            # What was done before something went wrong, or was stopped, was done.
            if outcomes:
                output.write_rows(_APPLIED, outcomes, format)
            raise
        output.write_rows(_APPLIED, outcomes, format)
        if format is output.OutputFormat.TABLE:
            output.echo(VACUUM_NOTE)


def _applied(row: OutcomeRow, reading: ReaderFactory, connection: Connection, *, hand_over: bool) -> tuple[Any, ...]:
    shown = row | {"skipped": row["error"]}
    if row["outcome"] is not Outcome.LEFT:
        handed_over = _handed_over(row["room_id"], reading, connection) if hand_over else 0
        shown |= {"handed_over": handed_over, "undo": " ".join(row["undo"])}
    return tuple(round(value, 2) if isinstance(value, float) else value for value in map(shown.get, _APPLIED))


def _handed_over(room_id: str, reading: ReaderFactory, connection: Connection) -> int:
    try:
        with reading() as reader:
            nobodys = reader.read_room(room_id).unreferenced
    except RoomSkippedError:
        # It was purged just now, and all its groups with it.
        return 0
    return unreferenced_groups.mark_pending_deletion(connection, nobodys)


def verify(
    settings: Settings, wanted: CompressorSettings, rooms: Sequence[str], files: Sequence[Path], 
    format: output.OutputFormat, *, any_strategy: bool,
) -> bool:  # fmt: skip
    """Write what is wrong with each room; whether nothing is."""
    kept = [undo_files.read(file) for file in files]
    max_chain = wanted.max_chain if any_strategy or wanted.strategy is Strategy.BEST else None
    rows = []
    with connect_readers(str(settings.synapse_dsn), settings, _READ) as reading, reading() as reader:
        named = [*rooms, *dict.fromkeys(one.room_id for one in kept if one.room_id not in rooms)]
        reader.require_rooms(named)
        for room in _shown("Verifying", named or reader.select_rooms(wanted, all_state=True)):
            contents = reader.read_tables(room)
            found = verify_room(contents, room, max_chain, [one for one in kept if one.room_id == room])
            rows.append(astuple(found))
    output.write_rows(_VERIFIED, [(*row[:-1], "; ".join(row[-1])) for row in rows], format)
    return not any(row[-1] for row in rows)


def undo(settings: Settings, files: Sequence[Path], *, yes: bool, repair: bool) -> None:
    """Put back what the files hold, the latest first; with ``repair`` also where a group resolves otherwise now."""
    dsn = require_write_dsn(settings)
    kept = sorted((undo_files.read(file) for file in files), key=lambda one: one.written, reverse=True)
    if not yes:
        for one in kept:
            where = to_printable(f"{one.room_id} in {one.database}")
            output.echo(f"Would put back up to {len(one.groups)} state groups of {where}.")
        output.echo("This is a dry run, and nothing was changed. Add --yes to put them back.", err=True)
        return
    by_room: dict[str, list[undo_files.UndoFile]] = {}
    for one in kept:
        by_room.setdefault(one.room_id, []).append(one)
    with (
        compression_log.open_compression_log(settings, "compress undo") as record,
        connect_readers(dsn, settings, WRITE_DSN_SETTING) as reading,
        open_write_connection(dsn) as connection,
        output.progress_bar() as bar,
    ):
        _require_same_database(kept, connection)
        alone: list[str] = []
        for room_id, of_room in by_room.items():
            writer = _writer(connection, CompressorSettings(), bar, "")
            done = restore_and_record(of_room, reading, writer, record, repair=repair)
            if done["outcome"] is Outcome.LEFT:
                alone.append(f"Nothing of {to_printable(room_id)} was put back: {done['error']}")
                continue
            put_back, left = done["groups_rewritten"], done["groups_left"]
            output.echo(f"Put back {put_back} state groups of {to_printable(room_id)}, left {left} as they are.")
        if alone:
            raise CompressorError("\n".join(alone))


def _require_same_database(kept: Sequence[undo_files.UndoFile], connection: Connection) -> None:
    for one in kept:
        if one.database != connection.info.dbname:
            raise CompressorError(
                f"{one.path} is of the database {to_printable(one.database)}, not {connection.info.dbname}. "
                "Nothing was put back."
            )


def _shown(what: str, rooms: Sequence[str]) -> Iterator[str]:
    """The rooms, with a bar that shows how far it is where somebody watches."""
    with output.progress_bar() as bar:
        task = bar.add_task(what, total=len(rooms))
        for room in rooms:
            yield room
            bar.advance(task)


def _writer(connection: Connection, wanted: CompressorSettings, bar: Progress, which: str) -> GroupWriter:
    name = f"Room {which}".strip()
    task: TaskID = bar.add_task(name, total=None)

    def tell(said: str) -> None:
        bar.update(task, description=to_printable(f"{name}, {said}"))

    load = Backpressure(connection, wanted.busy_sessions, wanted.lag_bytes, tell)
    return GroupWriter(connection, load, lambda work, total: bar.update(task, advance=work, total=total))
