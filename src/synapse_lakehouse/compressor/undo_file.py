"""How groups were stored before they were compressed, in a file, so that a room can be put back.

Until what was written has been read again and compared, the file's name says so: whoever goes on after an interruption
compares with it, too.
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
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.algorithm.state_arrays import StateTables
from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition

_ROOM, _DATABASE, _WRITTEN, _LINEAGE = b"room_id", b"database", b"written", b"lineage"
_NOT_COMPARED: Final = ".not-compared.parquet"
_COLUMNS: Final = ("state_group", "prev_state_group", "type", "state_key", "event_id")


@dataclass(frozen=True)
class UndoFile:
    """Groups of a room as they were stored."""

    path: Path
    room_id: str
    database: str
    lineage: WalPosition | None
    """Of the database when it was written; files of earlier versions do not say."""
    written: str
    """When: a text that sorts as times do."""
    groups: Int64Array
    edges: pa.Table
    rows: pa.Table

    def may_be_of_other_groups(self, now: WalPosition) -> bool:
        """Whether the database was restored or failed over since: ids may have been given to other groups then."""
        return self.lineage is not None and not now.continues(self.lineage)

    def contents(self, groups: pa.Table) -> StateTables:
        """They as contents, beside what ``state_groups`` has."""
        return StateTables(groups, self.edges, self.rows)

    def restorable_groups(self, now: StateTables) -> Int64Array:
        """Those of the groups that are there now, with what they hung on."""
        there = now.groups["id"].to_numpy()
        prevs = self.edges["prev_state_group"].to_numpy()
        lost = self.edges["state_group"].to_numpy()[~np.isin(prevs, there)]
        return np.setdiff1d(np.intersect1d(self.groups, there), lost)


def contents_before(kept: Iterable[UndoFile], now: StateTables) -> StateTables:
    """``now`` with the groups of all files as these have them, as far as they are still there; the earliest counts."""
    for one in sorted(kept, key=lambda undo: undo.written, reverse=True):
        now = replace_groups(now, one.restorable_groups(now), one.contents(now.groups))
    return now


def undo_folder(home: Path) -> Path:
    """Where undo files are kept."""
    return home / "compression" / "undo"


def create_folder(where: Path) -> None:
    """Make the folder ``where``.

    :raises CompressorError: when it cannot be made.
    """
    with _explained(where):
        where.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextmanager
def _explained(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CompressorError(
            f"How groups were stored cannot be kept in {where}: {error.strerror}. Without that nothing is written. "
            "Make room there, or let the user of this command write there, and run it again."
        ) from None


def write(where: Path, room_id: str, database: str, of: WalPosition, ids: Int64Array, contents: StateTables) -> Path:
    """Keep how the groups ``ids`` are stored; the file is on disk, whole, when this returns, and not compared yet.

    One row for each row of a group, with its predecessor; one without a type for a group that has no rows.

    :raises CompressorError: when the file cannot be written.
    """
    groups = pa.table({"state_group": pa.array(ids)})
    table = groups.join(contents.edges, "state_group").join(contents.rows, "state_group").select(_COLUMNS)
    written = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    said = {_ROOM: room_id, _DATABASE: database, _WRITTEN: written, _LINEAGE: json.dumps(asdict(of))}
    table = table.replace_schema_metadata(said)
    name = f"{written}-{_short(room_id)}{_NOT_COMPARED}"
    unfinished = where / f".{name}.unfinished"
    with _explained(where):
        with unfinished.open("wb") as stream:
            pq.write_table(table, stream, compression="zstd")
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.rename(where / name)
        listing = os.open(where, os.O_RDONLY)
        try:
            os.fsync(listing)
        finally:
            os.close(listing)
    return where / name


def find_not_compared(where: Path, room_id: str, database: str) -> list[UndoFile]:
    """What attempts to compress the room wrote and did not live to compare, the latest first.

    :raises CompressorError: when a file cannot be read.
    """
    files = sorted(where.glob(f"*-{_short(room_id)}{_NOT_COMPARED}"), reverse=True)
    return [one for one in map(read, files) if (one.room_id, one.database) == (room_id, database)]


def mark_compared(path: Path) -> Path:
    """Let the name of an undo file say that it was compared; the name."""
    return path.rename(path.with_name(path.name.replace(_NOT_COMPARED, ".parquet")))


def _short(room_id: str) -> str:
    return hashlib.sha256(room_id.encode()).hexdigest()[:12]


def read(path: Path) -> UndoFile:
    """What an undo file holds.

    :raises CompressorError: when it is none.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise CompressorError(f"{path} cannot be read as an undo file: {error}") from None
    kept = table.schema.metadata or {}
    if table.column_names != list(_COLUMNS) or _ROOM not in kept:
        raise CompressorError(f"{path} is not an undo file of the compressor.")
    pairs = table.select(_COLUMNS[:2]).group_by(list(_COLUMNS[:2])).aggregate([])
    edges = pairs.filter(pc.is_valid(pairs["prev_state_group"]))
    rows = table.filter(pc.is_valid(table["type"])).drop_columns("prev_state_group")
    room_id, database, written = (kept[name].decode() for name in (_ROOM, _DATABASE, _WRITTEN))
    of = WalPosition(**json.loads(kept[_LINEAGE])) if _LINEAGE in kept else None
    return UndoFile(path, room_id, database, of, written, np.sort(pairs["state_group"].to_numpy()), edges, rows)
