"""The synthetic homeserver of ``bench.visibility`` has valid state groups."""

import numpy as np
import pytest

from bench.visibility.synthetic_rooms import MEMBER, SyntheticServer, generate_server


@pytest.fixture(scope="module")
def server() -> SyntheticServer:
    return generate_server(0.002)


def test_chains_end_within_100_hops_in_their_room(server: SyntheticServer) -> None:
    prev, room = server.groups["prev"], server.groups["room"]
    at, hops = np.arange(1, len(prev) + 1), 0
    while len(at := at[prev[at - 1] > 0]):
        assert (prev[at - 1] < at).all()
        assert (room[prev[at - 1] - 1] == room[at - 1]).all()
        at, hops = prev[at - 1], hops + 1
    assert 90 <= hops < 100


def test_state_events_are_in_their_own_state(server: SyntheticServer) -> None:
    state: dict[int, dict[int, int]] = {}
    of_group = np.argsort(server.rows["group"], kind="stable")
    rows = {name: column[of_group] for name, column in server.rows.items()}
    begins = np.searchsorted(rows["group"], np.arange(1, len(server.groups["prev"]) + 2))
    for group, prev in enumerate(server.groups["prev"].tolist(), 1):
        own = slice(begins[group - 1], begins[group])
        changed = dict(zip(rows["key"][own].tolist(), rows["event"][own].tolist(), strict=True))
        assert len(changed) == own.stop - own.start, "a key twice"
        state[group] = (state[prev] if prev > 0 else {}) | changed
    events = server.events
    for event in np.flatnonzero((events["key"] >= 0) & (events["group"] > 0)).tolist():
        assert state[events["group"][event]][events["key"][event]] == event
    assert (events["key"][events["group"] < 0] >= MEMBER).all(), "outliers are members of before"
    before = events["replaces"] >= 0
    assert (events["key"][events["replaces"][before]] == events["key"][before]).all()
    assert (events["room"][events["replaces"][before]] == events["room"][before]).all()
