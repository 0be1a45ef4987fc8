"""Plan and verify the compression of a room in a separate process, and print the measurements as JSON.

The CPU seconds exclude loading Numba's compiled functions. The memory is that of the whole process.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from bench.compression.synthetic_rooms import ROOM, SMALL, room
from synapse_lakehouse.compressor.algorithm.plan_room import PlannedGroups, RoomPlan, estimate_room
from synapse_lakehouse.compressor.algorithm.state_fingerprints import fingerprint_states
from synapse_lakehouse.compressor.algorithm.state_groups import StateGroups
from synapse_lakehouse.compressor.compress_room import plan_room
from synapse_lakehouse.compressor.postgres.snapshot_connections import connect_readers
from synapse_lakehouse.compressor.settings import CompressorSettings
from synapse_lakehouse.config.settings import Settings

WHOLE_ROOM = 1_000_000_000
"""Groups per chunk: one chunk for the room, also for the reference compressor."""


def main(strategy: str, dsn: str) -> None:
    """Read, plan and verify, and print the measurements."""
    settings = CompressorSettings.model_validate({"strategy": strategy, "chunk_size": WHOLE_ROOM})
    estimate_room(room(SMALL, 1), ROOM, settings.layout, None)
    started = time.process_time()
    plan, counts = _plan(dsn, settings)
    cost = {"cpu": time.process_time() - started, "memory": _peak_memory()}
    rows = {"rows_before": counts.rows_before, "rows_after": counts.rows_after}
    print(json.dumps(rows | {"minimum_rows": minimum_rows(plan.before)} | cost))


def _plan(dsn: str, settings: CompressorSettings) -> tuple[PlannedGroups, RoomPlan]:
    with connect_readers(dsn, Settings(), "SYNAPSE_DSN") as reading, reading() as reader:
        return plan_room(reader.read_room(ROOM), settings)


def _peak_memory() -> int:
    """Return the peak resident set in bytes. getrusage would include the parent before exec."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def minimum_rows(groups: StateGroups) -> int:
    """Return a lower bound of the rows that store these states, whatever the length of the chains.

    A predecessor is older than its group. So a group needs a row for each entry that no older state contains. It needs
    at least one row if older states contain all its entries, but none equals its state.
    """
    pairs = groups.keys.astype(np.int64) << 32 | groups.events
    _, first_rows = np.unique(pairs, return_index=True)
    of_group = np.searchsorted(groups.starts, first_rows, side="right") - 1
    first_seen = np.bincount(of_group, minlength=len(groups))
    fingerprinted = fingerprint_states(groups)
    _, first_states = np.unique(fingerprinted.fingerprints, axis=0, return_index=True)
    is_new = np.zeros(len(groups), np.int64)
    is_new[first_states] = fingerprinted.sizes[first_states] > 0
    return int(np.maximum(first_seen, is_new).sum())


if __name__ == "__main__":
    main(*sys.argv[1:])
