"""Chains that are too long, cut as Synapse cuts them: a group is stored whole."""

from dataclasses import replace

import numpy as np

from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from synapse_lakehouse.numba_jit import BoolArray, Int32Array


def limit_chains(groups: StateGroups, in_range: BoolArray, max_chain: int) -> StateGroups:
    """The same groups, those ``in_range`` stored whole where their chain would have more than ``max_chain`` nodes.

    That takes rows, so it comes after everything that saves them: chains get too long where a room grew while others of
    its groups were hung elsewhere, or where another compressor left them so.
    """
    if groups.chain_nodes().max(initial=0) <= max_chain:
        return groups
    prev, nodes = groups.prev.copy(), np.ones(len(groups), np.int64)
    for group in range(len(groups)):
        if prev[group] != NONE:
            nodes[group] = nodes[prev[group]] + 1
            if nodes[group] > max_chain and in_range[group]:
                prev[group], nodes[group] = NONE, 1
    whole = {int(group): _state(groups, int(group)) for group in np.flatnonzero(prev != groups.prev)}
    counts = groups.rows
    counts[list(whole)] = [len(keys) for keys, _ in whole.values()]
    starts = np.concatenate([[0], np.cumsum(counts)])
    keys, events = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
    kept = np.repeat(prev == groups.prev, groups.rows)
    to = (np.arange(len(groups.keys)) + np.repeat(starts[:-1] - groups.starts[:-1], groups.rows))[kept]
    keys[to], events[to] = groups.keys[kept], groups.events[kept]
    for group, state in whole.items():
        keys[starts[group] : starts[group + 1]], events[starts[group] : starts[group + 1]] = state
    return replace(groups, prev=prev, starts=starts, keys=keys, events=events)


def _state(groups: StateGroups, group: int) -> tuple[Int32Array, Int32Array]:
    """Keys and events of a resolved state."""
    state: dict[int, int] = {}
    node = group
    while node != NONE:
        rows = slice(groups.starts[node], groups.starts[node + 1])
        state = dict(zip(groups.keys[rows].tolist(), groups.events[rows].tolist(), strict=True)) | state
        node = int(groups.prev[node])
    return np.array(sorted(state), np.int32), np.array([state[key] for key in sorted(state)], np.int32)
