"""Fingerprints of the states of state groups."""

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from synapse_lakehouse.numba_jit import BoolArray, Int32Array, Int64Array, cached_njit

_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SEEDS = np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], np.uint64)


@dataclass(frozen=True)
class StateFingerprints:
    """For each group: the number of keys of its state, and 128 bits that depend only on its state."""

    sizes: Int64Array
    fingerprints: NDArray[np.uint64]

    def differ(self, other: "StateFingerprints") -> BoolArray:
        """Return which groups have another state in ``other``."""
        return cast(BoolArray, (self.sizes != other.sizes) | (self.fingerprints != other.fingerprints).any(axis=1))


def fingerprint_states(groups: StateGroups) -> StateFingerprints:
    """Fingerprint each group. Time and memory grow with the stored rows, not with the resolved states."""
    return StateFingerprints(*_fingerprints(groups.prev, groups.starts, groups.keys, groups.events, groups.key_count))


@cached_njit
def _hash_row(key: int, event: int, seed: np.uint64) -> np.uint64:
    """Hash one row with the finaliser of SplitMix64."""
    word = (np.uint64(key) << np.uint64(32)) + np.uint64(event) + seed
    word = (word ^ (word >> np.uint64(30))) * _MIX_1
    word = (word ^ (word >> np.uint64(27))) * _MIX_2
    return word ^ (word >> np.uint64(31))


@cached_njit
def find_children(prev: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Sort the groups by predecessor: the children of ``p`` are at ``children[starts[p + 1] : starts[p + 2]]``."""
    starts = np.zeros(len(prev) + 2, np.int64)
    for group in range(len(prev)):
        starts[prev[group] + 2] += 1
    starts = np.cumsum(starts)
    children = np.empty(len(prev), np.int64)
    filled = starts.copy()
    for group in range(len(prev)):
        children[filled[prev[group] + 1]] = group
        filled[prev[group] + 1] += 1
    return starts, children


@cached_njit
def _fingerprints(
    prev: Int64Array, starts: Int64Array, keys: Int32Array, events: Int32Array, key_count: int
) -> tuple[Int64Array, NDArray[np.uint64]]:
    """Search depth-first from each full state, and undo each group's rows on the way back."""
    sizes = np.zeros(len(prev), np.int64)
    prints = np.zeros((len(prev), 2), np.uint64)
    child_starts, children = find_children(prev)
    state = np.full(key_count, NONE, np.int32)
    replaced = np.empty(len(keys), np.int32)
    path = np.empty(len(prev) + 1, np.int64)
    next_child = np.empty(len(prev) + 1, np.int64)
    depth = 0
    path[0], next_child[0] = NONE, child_starts[0]
    while depth >= 0:
        group = path[depth]
        if next_child[depth] < child_starts[group + 2]:
            child = children[next_child[depth]]
            next_child[depth] += 1
            if group != NONE:
                sizes[child], prints[child] = sizes[group], prints[group]
            for row in range(starts[child], starts[child + 1]):
                old = state[keys[row]]
                replaced[row] = old
                for half in range(2):
                    if old != NONE:
                        prints[child, half] -= _hash_row(keys[row], old, _SEEDS[half])
                    prints[child, half] += _hash_row(keys[row], events[row], _SEEDS[half])
                sizes[child] += old == NONE
                state[keys[row]] = events[row]
            depth += 1
            path[depth], next_child[depth] = child, child_starts[child + 1]
        else:
            if group != NONE:
                for row in range(starts[group + 1] - 1, starts[group] - 1, -1):
                    state[keys[row]] = replaced[row]
            depth -= 1
    return sizes, prints
