"""Shorten long chains in the same way as Synapse: store a group as a full state, without a predecessor."""

from dataclasses import replace

import numpy as np

from synapse_lakehouse.compressor.algorithm.fewest_rows import write_rows
from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from synapse_lakehouse.numba_jit import BoolArray


def limit_chains(groups: StateGroups, in_range: BoolArray, max_chain: int) -> StateGroups:
    """Store a group ``in_range`` as a full state if its chain would have more than ``max_chain`` groups.

    This step adds rows, so it comes after the steps that remove rows. Chains get too long when a room grows while it
    is compressed, or when another compressor writes them.
    """
    if groups.chain_nodes().max(initial=0) <= max_chain:
        return groups
    prev, nodes = groups.prev.copy(), np.ones(len(groups), np.int64)
    for group in range(len(groups)):
        if prev[group] != NONE:
            nodes[group] = nodes[prev[group]] + 1
            if nodes[group] > max_chain and in_range[group]:
                prev[group], nodes[group] = NONE, 1
    starts, keys, events = write_rows(
        groups.prev, groups.starts, groups.keys, groups.events, groups.key_count, prev != groups.prev, prev
    )
    return replace(groups, prev=prev, starts=starts, keys=keys, events=events)
