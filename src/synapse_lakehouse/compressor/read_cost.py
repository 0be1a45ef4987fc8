"""What reading the state of a group costs Synapse: measured with the query that it asks on PostgreSQL.

Synapse walks the chain of a group and takes of each key the row of the newest group, with sequential scans switched
off. Each group is read twice and the quicker time counts, so that neither side pays for a cold cache.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

import numpy as np

from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.connection import Connection

_SAMPLED: Final = 20
_MOST_SECONDS: Final = 2.0

_DISK: Final = (
    "select sum(pg_total_relation_size(to_regclass(name)))"
    " from unnest(array['state_groups_state', 'state_group_edges']) as name"
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
    """``groups``: ids of those that were read; ``chain``: state groups that were read for the state of one, on average;
    ``milliseconds``: that it took, the median."""

    groups: tuple[int, ...]
    chain: float
    milliseconds: float


def cost_columns(before: ReadCost | None, after: ReadCost | None, disk: tuple[int, int]) -> dict[str, float | None]:
    """What reading costs and what is on disk, before and after: columns of ``audit.compression_runs``."""
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
    """Some of ``groups``, evenly from the oldest to the newest."""
    places = np.unique(np.linspace(0, len(groups) - 1, min(_SAMPLED, len(groups))).astype(np.int64))
    return np.sort(groups)[places].tolist()  # type: ignore[no-any-return]


def measure_read_cost(connection: Connection, groups: Sequence[int], seconds: float = _MOST_SECONDS) -> ReadCost | None:
    """Read the states of ``groups``, the newest first, until ``seconds`` have gone; None where there is none to read.

    The connection is in a transaction.
    """
    chains: dict[int, int] = {}
    times: dict[int, float] = {}
    began = time.monotonic()
    connection.execute("set local enable_seqscan = off")
    for group in sorted(groups, reverse=True):
        if times and time.monotonic() - began > seconds:
            break
        took = []
        for _ in range(2):
            asked = time.perf_counter()
            row = connection.execute(_READ.encode(), {"group": group}).fetchone()
            took.append(time.perf_counter() - asked)
        assert row is not None
        chains[group], times[group] = row[0], 1000 * min(took)
    connection.execute("set local enable_seqscan to default")
    return ReadCost(tuple(times), fmean(chains.values()), median(times.values())) if times else None


def measure_disk_bytes(connection: Connection) -> int:
    """Bytes that the rows and edges of all rooms take on the database's disk, with their indexes and with what VACUUM
    has not yet given back."""
    row = connection.execute(_DISK.encode()).fetchone()
    assert row is not None
    return int(row[0])
