"""Linked rooms are in one component, for any order of the links."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.room_state.room_components import find_components

VERTICES = st.one_of(st.integers(-5, 5), st.sampled_from([-(2**63), 2**63 - 1]))


@given(st.lists(st.tuples(VERTICES, VERTICES)), st.integers(1, 5))
def test_vertices_with_a_path_share_their_component(links: list[tuple[int, int]], size: int) -> None:
    schema = pa.schema([("vertex", pa.int64()), ("prev_vertex", pa.int64())])
    table = pa.table({"vertex": [left for left, _ in links], "prev_vertex": [right for _, right in links]}, schema)
    batches = find_components(table.to_batches(size))
    components = {row["vertex"]: row["component"] for batch in batches for row in batch.to_pylist()}
    reachable = {vertex: {vertex} for link in links for vertex in link}
    for _ in links:
        for left, right in links:
            connected = reachable[left] | reachable[right]
            for vertex in connected:
                reachable[vertex] |= connected
    assert components == {vertex: min(vertices) for vertex, vertices in reachable.items()}
