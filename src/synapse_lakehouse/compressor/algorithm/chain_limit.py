"""Shorten long chains in the same way as Synapse: store a group as a full state, without a predecessor."""

from dataclasses import replace

import numpy as np

from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from synapse_lakehouse.numba_jit import BoolArray, Int32Array


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
    full_states = {int(group): _resolve(groups, int(group)) for group in np.flatnonzero(prev != groups.prev)}
    counts = groups.rows
    counts[list(full_states)] = [len(keys) for keys, _ in full_states.values()]
    starts = np.concatenate([[0], np.cumsum(counts)])
    keys, events = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
    unchanged = np.repeat(prev == groups.prev, groups.rows)
    targets = (np.arange(len(groups.keys)) + np.repeat(starts[:-1] - groups.starts[:-1], groups.rows))[unchanged]
    keys[targets], events[targets] = groups.keys[unchanged], groups.events[unchanged]
    for group, state in full_states.items():
        keys[starts[group] : starts[group + 1]], events[starts[group] : starts[group + 1]] = state
    return replace(groups, prev=prev, starts=starts, keys=keys, events=events)


def _resolve(groups: StateGroups, group: int) -> tuple[Int32Array, Int32Array]:
    """Return the keys and events of a group's state."""
    state: dict[int, int] = {}
    node = group
    while node != NONE:
        rows = slice(groups.starts[node], groups.starts[node + 1])
        state = dict(zip(groups.keys[rows].tolist(), groups.events[rows].tolist(), strict=True)) | state
        node = int(groups.prev[node])
    return np.array(sorted(state), np.int32), np.array([state[key] for key in sorted(state)], np.int32)
