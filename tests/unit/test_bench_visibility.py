"""The synthetic homeserver of ``bench.visibility`` has valid state groups."""

import numpy as np
import pytest

from bench.visibility.synthetic_rooms import MEMBER, SyntheticServer, generate_server


@pytest.fixture(scope="module")
def server() -> SyntheticServer:
    return generate_server(0.002)


def test_chains_end_within_100_hops_in_their_room(server: SyntheticServer) -> None:
    prev, room = server.groups["prev"], server.groups["room"]
    groups, hops = np.arange(1, len(prev) + 1), 0
    while len(groups := groups[prev[groups - 1] > 0]):
        assert (prev[groups - 1] < groups).all()
        assert (room[prev[groups - 1] - 1] == room[groups - 1]).all()
        groups, hops = prev[groups - 1], hops + 1
    assert 90 <= hops < 100


def test_state_events_are_in_their_own_state(server: SyntheticServer) -> None:
    state: dict[int, dict[int, int]] = {}
    by_group = np.argsort(server.rows["group"], kind="stable")
    rows = {name: column[by_group] for name, column in server.rows.items()}
    starts = np.searchsorted(rows["group"], np.arange(1, len(server.groups["prev"]) + 2))
    for group, prev in enumerate(server.groups["prev"].tolist(), 1):
        group_rows = slice(starts[group - 1], starts[group])
        changed = dict(zip(rows["key"][group_rows].tolist(), rows["event"][group_rows].tolist(), strict=True))
        assert len(changed) == group_rows.stop - group_rows.start, "a state key has two rows"
        state[group] = (state[prev] if prev > 0 else {}) | changed
    events = server.events
    for event in np.flatnonzero((events["key"] >= 0) & (events["group"] > 0)).tolist():
        assert state[events["group"][event]][events["key"][event]] == event
    assert (events["key"][events["group"] < 0] >= MEMBER).all(), "an outlier is not a member event"
    replacing = events["replaces"] >= 0
    assert (events["key"][events["replaces"][replacing]] == events["key"][replacing]).all()
    assert (events["room"][events["replaces"][replacing]] == events["room"][replacing]).all()
