"""Group rooms whose state groups are linked, because their trees can only be numbered together."""

from collections.abc import Iterable, Iterator

import pyarrow as pa


def find_components(links: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each vertex of the ``links`` with the smallest vertex that is linked to it: vertex, component.

    :param links: vertex, prev_vertex; both are names.
    """
    parents: dict[str, str] = {}
    for batch in links:
        for vertex, other in zip(batch["vertex"].to_pylist(), batch["prev_vertex"].to_pylist(), strict=True):
            first, second = sorted((_find_root(parents, vertex), _find_root(parents, other)))
            parents[second] = first
    roots = [_find_root(parents, vertex) for vertex in parents]
    yield pa.record_batch({"vertex": pa.array(parents, pa.string()), "component": pa.array(roots, pa.string())})


def _find_root(parents: dict[str, str], vertex: str) -> str:
    parents.setdefault(vertex, vertex)
    while parents[vertex] != vertex:
        # Halving the path keeps the following searches short.
        parents[vertex] = vertex = parents[parents[vertex]]
    return vertex
