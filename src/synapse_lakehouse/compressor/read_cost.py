"""Measure the cost of reading the state of a group, with Synapse's own query for PostgreSQL.

Synapse reads the chain of a group and takes the row of the newest group for each key; sequential scans are disabled.
Each group is read twice and the shorter time counts, so that a cold cache has no effect.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

import numpy as np

from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.connection import Connection

_SAMPLE_SIZE: Final = 20
_MAXIMUM_SECONDS: Final = 2.0

_DISK: Final = (
    "select sum(pg_total_relation_size(file))"
    " from unnest(array['state_groups_state', 'state_group_edges']::regclass[]) as parent,"
    " lateral (select parent as file union select relid from pg_partition_tree(parent)) as files"
)

_READ: Final = """
with recursive chain(id) as (
  select %(group)s::bigint
  union select prev_state_group from state_group_edges join chain on state_group = id
)
select (select count(*) from chain), (select count(*) from (
  select distinct on (type, state_key) type, state_key, event_id from state_groups_state
  where state_group in (select id from chain) order by type, state_key, state_group desc
) as state)
"""


@dataclass(frozen=True)
class ReadCost:
    """``groups``: IDs of the read groups. ``chain``: mean length of their chains. ``milliseconds``: median time."""

    groups: tuple[int, ...]
    chain: float
    milliseconds: float


def cost_columns(before: ReadCost | None, after: ReadCost | None, disk: tuple[int, int]) -> dict[str, float | None]:
    """Return the read cost and disk usage before and after: columns of ``audit.compression_runs``."""
    return {
        "groups_sampled": len(before.groups) if before else None,
        "chain_before": before.chain if before else None,
        "chain_after": after.chain if after else None,
        "read_ms_before": before.milliseconds if before else None,
        "read_ms_after": after.milliseconds if after else None,
        "disk_bytes_before": disk[0],
        "disk_bytes_after": disk[1],
    }


def sample_groups(groups: Int64Array) -> list[int]:
    """Return a sample of ``groups``, evenly spaced from the oldest to the newest."""
    indices = np.unique(np.linspace(0, len(groups) - 1, min(_SAMPLE_SIZE, len(groups))).astype(np.int64))
    return np.sort(groups)[indices].tolist()  # type: ignore[no-any-return]


def measure_read_cost(
    connection: Connection, groups: Sequence[int], seconds: float = _MAXIMUM_SECONDS
) -> ReadCost | None:
    """Read the states of ``groups``, the newest first, for at most about ``seconds``; None without groups.

    The connection must be in a transaction.
    """
    chains: dict[int, int] = {}
    times: dict[int, float] = {}
    started_at = time.monotonic()
    connection.execute("set local enable_seqscan = off")
    for group in sorted(groups, reverse=True):
        if times and time.monotonic() - started_at > seconds:
            break
        durations = []
        for _ in range(2):
            started = time.perf_counter()
            row = connection.execute(_READ.encode(), {"group": group}).fetchone()
            durations.append(time.perf_counter() - started)
        assert row is not None
        chains[group], times[group] = row[0], 1000 * min(durations)
    connection.execute("set local enable_seqscan to default")
    return ReadCost(tuple(times), fmean(chains.values()), median(times.values())) if times else None


def measure_disk_bytes(connection: Connection) -> int:
    """Return the bytes of the state tables of all rooms on disk, with indexes and dead rows."""
    row = connection.execute(_DISK.encode()).fetchone()
    assert row is not None
    return int(row[0])
