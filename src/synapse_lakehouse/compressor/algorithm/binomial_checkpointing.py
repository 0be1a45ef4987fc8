"""Binomial checkpointing: delta trees of bounded depth for a line of successive states.

If each step of a line changes one key, a delta over n steps needs n rows. The algorithm "revolve" of Griewank and
Walther (ACM TOMS 26, 2000) gives the minimum sum of rows for a bounded depth. Its checkpoints are the bases of the
deltas. A tree with ``depth`` levels below its first node, and at most ``spans`` edges over any step, has at most
``binomial(depth + spans, spans)`` nodes.
"""

import numpy as np

from synapse_lakehouse.numba_jit import Int64Array, cached_njit

INFINITE_COST = 10**12
"""Cost of an impossible tree: more rows than any room has."""


@cached_njit
def maximum_line_length(depth: int, spans: int) -> int:
    """Return the maximum line length at ``depth`` with at most ``spans`` edges over a step: C(depth + spans, spans)."""
    if spans < 0 or depth < 0:
        return 0
    nodes = 1
    for number in range(1, min(spans, depth) + 1):
        nodes = nodes * (depth + spans + 1 - number) // number
        if nodes > INFINITE_COST:
            return INFINITE_COST
    return nodes


@cached_njit
def minimum_line_cost(length: int, depth: int) -> int:
    """Return the minimum number of rows for a line of ``length`` nodes in a tree that is at most ``depth`` deep."""
    if length <= 1:
        return 0
    if depth < 1:
        return INFINITE_COST
    total, spans, covered = 0, 1, 1
    while covered < length:
        end = min(length, maximum_line_length(depth, spans))
        total += spans * (end - covered)
        covered, spans = end, spans + 1
    return total


@cached_njit
def assign_line_bases(line: Int64Array, depth: int, bases: Int64Array, depths: Int64Array) -> None:
    """Choose a base for each node of ``line`` except the first. The tree is at most ``depth`` deep below the first.

    The result is written to ``bases`` and ``depths``. The caller sets the depth of the first node.
    """
    # Pieces of the line that remain: start, length, maximum depth.
    pieces = np.empty((len(line) + 1, 3), np.int64)
    pieces[0, 0], pieces[0, 1], pieces[0, 2] = 0, len(line), depth
    top = 0
    while top >= 0:
        start, length, below = pieces[top]
        top -= 1
        spans = 1
        while maximum_line_length(below, spans) < length:
            spans += 1
        while spans > 1:
            # The last child of the first node. All positions in these limits are optimal; this position leaves the
            # shortest line.
            split = min(maximum_line_length(below, spans - 1), length - maximum_line_length(below - 1, spans - 1))
            child = line[start + split]
            bases[child], depths[child] = line[start], depths[line[start]] + 1
            top += 1
            pieces[top, 0], pieces[top, 1], pieces[top, 2] = start + split, length - split, below - 1
            length = split
            while spans > 1 and maximum_line_length(below, spans - 1) >= length:
                spans -= 1
        for node in range(start + 1, start + length):
            bases[line[node]], depths[line[node]] = line[node - 1], depths[line[node - 1]] + 1
