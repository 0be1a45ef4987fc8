"""Undo files: the groups of a room before a compression, to restore the room.

The name of a file ends in ``.not-compared.parquet`` until the states were compared after the compression. A resumed
compression also compares the states with the files of the interrupted compression.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from synapse_lakehouse.compressor.algorithm.compare_states import replace_groups
from synapse_lakehouse.compressor.algorithm.encode_tables import StateTables
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition

_ROOM, _DATABASE, _WRITTEN, _WAL_POSITION = b"room_id", b"database", b"written", b"lineage"
_NOT_COMPARED: Final = ".not-compared.parquet"
_COLUMNS: Final = ("state_group", "prev_state_group", "type", "state_key", "event_id")


@dataclass(frozen=True)
class UndoFile:
    """The groups of a room before a compression."""

    path: Path
    room_id: str
    database: str
    wal_position: WalPosition
    """Position of the database when the file was written."""
    written: str
    """Time of writing, as text that sorts by time."""
    groups: Int64Array
    edges: pa.Table
    rows: pa.Table

    def may_be_of_other_groups(self, now: WalPosition) -> bool:
        """Return whether IDs may be reused: the database was restored or failed over since the file was written."""
        return not now.continues(self.wal_position)

    def contents(self, groups: pa.Table) -> StateTables:
        """Return the tables of the file, with ``groups`` as ``state_groups``."""
        return StateTables(groups, self.edges, self.rows)

    def restorable_groups(self, now: StateTables) -> Int64Array:
        """Return the groups that still exist together with their former predecessors."""
        existing = now.groups["id"].to_numpy()
        prevs = self.edges["prev_state_group"].to_numpy()
        without_predecessor = self.edges["state_group"].to_numpy()[~np.isin(prevs, existing)]
        return np.setdiff1d(np.intersect1d(self.groups, existing), without_predecessor)


def contents_before(undo_files: Iterable[UndoFile], now: StateTables) -> StateTables:
    """Return ``now`` with all restorable groups as in ``undo_files``; for each group, the oldest file counts."""
    for file in sorted(undo_files, key=lambda file: file.written, reverse=True):
        now = replace_groups(now, file.restorable_groups(now), file.contents(now.groups))
    return now


def undo_folder(home: Path) -> Path:
    """Return the folder of undo files."""
    return home / "compression" / "undo"


def create_folder(folder: Path) -> None:
    """Create ``folder``.

    :raises CompressorError: when it cannot be created.
    """
    with _explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextmanager
def _explain_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CompressorError(
            f"The undo file cannot be written to {folder}: {error.strerror}. The room is not "
            "compressed without it. Free disk space, or give the user of this command write access to the folder. "
            "Then run the command again."
        ) from None


def write(
    folder: Path, room_id: str, database: str, position: WalPosition, ids: Int64Array, contents: StateTables
) -> Path:
    """Write the groups ``ids`` to a new undo file, durably, and return its path.

    The file has one row for each row of a group, with the predecessor of the group. A group without rows has one row
    with the type null.

    :raises CompressorError: when the file cannot be written.
    """
    groups = pa.table({"state_group": pa.array(ids)})
    table = groups.join(contents.edges, "state_group").join(contents.rows, "state_group").select(_COLUMNS)
    written_at = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    metadata = {_ROOM: room_id, _DATABASE: database, _WRITTEN: written_at, _WAL_POSITION: json.dumps(asdict(position))}
    table = table.replace_schema_metadata(metadata)
    name = f"{written_at}-{_room_hash(room_id)}{_NOT_COMPARED}"
    unfinished = folder / f".{name}.unfinished"
    with _explain_errors(folder):
        with unfinished.open("wb") as stream:
            pq.write_table(table, stream, compression="zstd")
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.rename(folder / name)
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    return folder / name


def find_uncompared_undo_files(folder: Path, room_id: str, database: str) -> list[UndoFile]:
    """Return undo files of interrupted compressions of the room, the latest first.

    :raises CompressorError: when a file cannot be read.
    """
    paths = sorted(folder.glob(f"*-{_room_hash(room_id)}{_NOT_COMPARED}"), reverse=True)
    return [file for file in map(read, paths) if (file.room_id, file.database) == (room_id, database)]


def mark_compared(path: Path) -> Path:
    """Rename an undo file after a successful comparison; return the new path."""
    return path.rename(path.with_name(path.name.replace(_NOT_COMPARED, ".parquet")))


def _room_hash(room_id: str) -> str:
    return hashlib.sha256(room_id.encode()).hexdigest()[:12]


def read(path: Path) -> UndoFile:
    """Read an undo file.

    :raises CompressorError: when the file is not an undo file.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise CompressorError(f"{path} cannot be read as an undo file: {error}") from None
    metadata = table.schema.metadata or {}
    are_ids = all(pa.types.is_integer(field.type) for field in list(table.schema)[:2])
    if table.column_names != list(_COLUMNS) or not are_ids:
        raise CompressorError(f"{path} is not an undo file of the compressor.")
    pairs = table.select(_COLUMNS[:2]).group_by(list(_COLUMNS[:2])).aggregate([])
    edges = pairs.filter(pc.is_valid(pairs["prev_state_group"]))
    rows = table.filter(pc.is_valid(table["type"])).drop_columns("prev_state_group")
    try:
        room_id, database, written = (metadata[name].decode() for name in (_ROOM, _DATABASE, _WRITTEN))
        position = WalPosition(**json.loads(metadata[_WAL_POSITION]))
    except (KeyError, TypeError, ValueError):
        raise CompressorError(
            f"{path} is not an undo file of the compressor, because its metadata is damaged."
        ) from None
    return UndoFile(path, room_id, database, position, written, np.sort(pairs["state_group"].to_numpy()), edges, rows)
