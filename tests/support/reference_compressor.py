"""Run Synapse's own compressor in a separate process. The strategy ``levels`` must return the same results."""

import itertools
import subprocess
from typing import Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from sample.environment import compressor_python
from synapse_lakehouse.compressor.algorithm.chunks import ChunkResult, RoomProgress, compress_chunks
from synapse_lakehouse.compressor.algorithm.encode_tables import encode_tables
from synapse_lakehouse.compressor.algorithm.level_sizes import levels_from_rows, parse_levels
from tests.support.state_database import state_tables
from tests.support.state_rooms import list_edges

_RUN: Final = """
from os import environ as given
from synapse_auto_compressor import compress_state_events_table
compress_state_events_table(given["DSN"], int(given["CHUNK"]), given["LEVELS"], int(given["CHUNKS"]))
"""


def run_reference(dsn: str, chunk_size: int, levels: str, chunks: int) -> None:
    """Run the compressor once."""
    environment = {"DSN": dsn, "CHUNK": str(chunk_size), "LEVELS": levels, "CHUNKS": str(chunks)}
    python = str(compressor_python())
    result = subprocess.run([python, "-c", _RUN], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def progress(dsn: str) -> tuple[dict[str, RoomProgress], int]:
    """Return the compressor's saved progress by room, and the oldest uncompressed group."""
    with psycopg.connect(dsn) as connection:
        if connection.execute("SELECT to_regclass('state_compressor_state')").fetchone() == (None,):
            return {}, 0
        progress_rows = connection.execute(
            "SELECT room_id, last_compressed, level_num, max_size, current_length, current_head"
            " FROM state_compressor_state JOIN state_compressor_progress USING (room_id) ORDER BY room_id, level_num"
        ).fetchall()
        total = connection.execute("SELECT lowest_uncompressed_group FROM state_compressor_total_progress").fetchone()
        assert total
    rooms = {}
    for room, rows in itertools.groupby(progress_rows, lambda row: row[0]):
        levels = list(rows)
        rooms[room] = RoomProgress(levels[0][1], levels_from_rows(level[2:] for level in levels))
    return rooms, total[0]


def compare(dsn: str, chunk_size: int, levels: str, chunks: int) -> list[ChunkResult]:
    """Run both compressors on the same database. Require equal rows, edges and progress; return the chunk results."""
    stored, names = encode_tables(*state_tables(dsn))
    before, oldest = progress(dsn)
    rooms = names.rooms.to_pylist()
    saved_progress = {rooms.index(room): saved for room, saved in before.items() if room in rooms}
    results = compress_chunks(stored, parse_levels(levels), chunk_size, saved_progress, oldest)
    steps = list(itertools.islice(results, chunks))
    run_reference(dsn, chunk_size, levels, chunks)
    _, edges, rows = state_tables(dsn)
    groups = stored.groups()
    # A purge can leave rows of groups without a row in state_groups. Both compressors ignore them.
    rows = rows.filter(pc.is_in(rows["state_group"], pa.array(groups.ids)))
    assert sorted(list_edges(groups)) == list(zip(*(column.to_pylist() for column in edges.columns), strict=True))
    expected = names.rows(groups).cast(rows.schema)
    assert expected.sort_by([(name, "ascending") for name in expected.column_names]).equals(rows)
    after, oldest = progress(dsn)
    assert after == before | {rooms[step.room]: step.progress for step in steps}
    assert not steps or oldest == steps[-1].first
    return steps
