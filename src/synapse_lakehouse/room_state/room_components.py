"""Group rooms whose state groups are linked, because their trees can only be numbered together."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from synapse_lakehouse.numba_jit import Int64Array, cached_njit


def find_components(links: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each vertex of ``links`` with the smallest vertex that is directly or indirectly linked to it.

    :param links: vertex, prev_vertex: each is the hash of a room, or of a deleted state group of which an edge is left.
    :return: vertex, component (the smallest vertex).
    """
    batches = [(batch["vertex"].to_numpy(), batch["prev_vertex"].to_numpy()) for batch in links]
    count = sum(len(vertex) for vertex, _ in batches)
    ends = [vertex for vertex, _ in batches] + [prev_vertex for _, prev_vertex in batches]
    vertices, ends_at = np.unique(np.concatenate([np.empty(0, np.int64), *ends]), return_inverse=True)
    roots = _find_roots(len(vertices), ends_at[:count], ends_at[count:])
    yield pa.record_batch({"vertex": vertices, "component": vertices[roots]})


@cached_njit
def _find_roots(count: int, left: Int64Array, right: Int64Array) -> Int64Array:
    """Return the smallest vertex that is linked to each of the vertices 0 to ``count`` - 1."""
    parents = np.arange(count)
    for link in range(len(left)):
        first, second = _find_root(parents, left[link]), _find_root(parents, right[link])
        parents[max(first, second)] = min(first, second)
    for vertex in range(count):
        parents[vertex] = _find_root(parents, vertex)
    return parents


@cached_njit
def _find_root(parents: Int64Array, vertex: int) -> int:
    while parents[vertex] != vertex:
        # Halving the path keeps the following searches short.
        parents[vertex] = parents[parents[vertex]]
        vertex = parents[vertex]
    return vertex
