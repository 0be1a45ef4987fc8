"""Plan the compression of a room, verified, as one process that is measured.

Prints figures as JSON. What a process takes once, to load what Numba compiled, is not in its seconds. Its memory is
that of the whole process.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from bench.compression.synthetic_rooms import ROOM, SMALL, room
from synapse_lakehouse.compressor.algorithm.estimate import PlannedGroups, RoomPlan, estimate_room
from synapse_lakehouse.compressor.algorithm.state_fingerprints import fingerprint_states
from synapse_lakehouse.compressor.algorithm.state_groups import StateGroups
from synapse_lakehouse.compressor.compress_room import plan_room
from synapse_lakehouse.compressor.postgres.snapshot_reader import connect_readers
from synapse_lakehouse.compressor.settings import CompressorSettings
from synapse_lakehouse.config.settings import Settings

WHOLE = 1_000_000_000
"""Groups in a chunk, so that a room is one: the reference then compresses a whole room, too."""


def main(strategy: str, dsn: str) -> None:
    """Read, plan and verify, and print what it came to."""
    settings = CompressorSettings.model_validate({"strategy": strategy, "chunk_size": WHOLE})
    estimate_room(room(SMALL, 1), ROOM, settings, None)
    began = time.process_time()
    plan, numbers = _planned(dsn, settings)
    cost = {"cpu": time.process_time() - began, "memory": _peak()}
    figures = {"rows_before": numbers.rows_before, "rows_after": numbers.rows_after, "least": least_rows(plan.before)}
    print(json.dumps(figures | cost))


def _planned(dsn: str, settings: CompressorSettings) -> tuple[PlannedGroups, RoomPlan]:
    with connect_readers(dsn, Settings(), "SYNAPSE_DSN") as reading, reading() as reader:
        return plan_room(reader.read_room(ROOM), settings)


def _peak() -> int:
    """Bytes of memory that this process had at most; what getrusage says counts whoever started it, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def least_rows(groups: StateGroups) -> int:
    """Rows without which these states cannot be stored, however long a chain may be.

    A base is older than its group. So what no older state holds takes a row of the group's own; and a state without any
    such, that is no older one's either, differs from each base by a row at least.
    """
    pairs = groups.keys.astype(np.int64) << 32 | groups.events
    _, first_rows = np.unique(pairs, return_index=True)
    of_group = np.searchsorted(groups.starts, first_rows, side="right") - 1
    first_seen = np.bincount(of_group, minlength=len(groups))
    known = fingerprint_states(groups)
    _, first_states = np.unique(known.fingerprints, axis=0, return_index=True)
    is_new = np.zeros(len(groups), np.int64)
    is_new[first_states] = known.sizes[first_states] > 0
    return int(np.maximum(first_seen, is_new).sum())


if __name__ == "__main__":
    main(*sys.argv[1:])
