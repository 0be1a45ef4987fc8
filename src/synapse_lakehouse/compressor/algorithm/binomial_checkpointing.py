"""Trees of bounded depth for a line of states that follow each other: binomial checkpointing.

Where each step of a line changes one key, the rows of an edge are the steps that it spans. The least sum under a bound
of the depth is that of Griewank and Walther's "revolve" (ACM TOMS 26, 2000), whose checkpoints are our bases: a tree
``depth`` deep below its first node, no step of which lies under more than ``spans`` edges, holds at most
``binomial(depth + spans, spans)`` nodes.
"""

import numpy as np

from synapse_lakehouse.numba_jit import Int64Array, cached_njit

INFINITE_COST = 10**12
"""More rows than any room has."""


@cached_njit
def maximum_line_length(depth: int, spans: int) -> int:
    """Nodes of the longest line that a tree ``depth`` deep below its first node holds under so many spans a step."""
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
    """The least steps that the edges of a tree for a line of ``length`` nodes span together."""
    if length <= 1:
        return 0
    if depth < 1:
        return INFINITE_COST
    total, spans, covered = 0, 1, 1
    while covered < length:
        upto = min(length, maximum_line_length(depth, spans))
        total += spans * (upto - covered)
        covered, spans = upto, spans + 1
    return total


@cached_njit
def assign_line_bases(line: Int64Array, depth: int, bases: Int64Array, depths: Int64Array) -> None:
    """Hang the nodes of ``line`` below its first, ``depth`` deep at most, whose entry in ``depths`` is set.

    Writes the base and the depth of each other node to ``bases`` and ``depths``.
    """
    # Pieces of the line left to do: the start, the length, and how deep it may be.
    todo = np.empty((len(line) + 1, 3), np.int64)
    todo[0, 0], todo[0, 1], todo[0, 2] = 0, len(line), depth
    top = 0
    while top >= 0:
        start, length, below = todo[top]
        top -= 1
        spans = 1
        while maximum_line_length(below, spans) < length:
            spans += 1
        while spans > 1:
            # The last child of the first node; any place in these limits is optimal, this one leaves its line shortest.
            split = min(maximum_line_length(below, spans - 1), length - maximum_line_length(below - 1, spans - 1))
            child = line[start + split]
            bases[child], depths[child] = line[start], depths[line[start]] + 1
            top += 1
            todo[top, 0], todo[top, 1], todo[top, 2] = start + split, length - split, below - 1
            length = split
            while spans > 1 and maximum_line_length(below, spans - 1) >= length:
                spans -= 1
        for node in range(start + 1, start + length):
            bases[line[node]], depths[line[node]] = line[node - 1], depths[line[node - 1]] + 1
