"""The made-up homeserver of ``bench.large``: what it says about itself has to hold, or its figures mean nothing."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from bench import large_rooms, slope
from bench.large_report import Built, Large, write
from bench.large_rooms import MEMBER, Server
from bench.meter import Cost


@pytest.fixture(scope="module")
def made() -> Server:
    return large_rooms.server(0.002)


def test_every_chain_ends_within_a_hundred_hops_in_its_own_room(made: Server) -> None:
    prev, room = made.groups["prev"], made.groups["room"]
    at, hops = np.arange(1, len(prev) + 1), 0
    while len(at := at[prev[at - 1] > 0]):
        assert (prev[at - 1] < at).all()
        assert (room[prev[at - 1] - 1] == room[at - 1]).all()
        at, hops = prev[at - 1], hops + 1
    assert 90 <= hops < 100


def test_events_are_in_the_state_that_they_set(made: Server) -> None:
    state: dict[int, dict[int, int]] = {}
    of_group = np.argsort(made.rows["group"], kind="stable")
    rows = {name: column[of_group] for name, column in made.rows.items()}
    begins = np.searchsorted(rows["group"], np.arange(1, len(made.groups["prev"]) + 2))
    for group, prev in enumerate(made.groups["prev"].tolist(), 1):
        own = slice(begins[group - 1], begins[group])
        changed = dict(zip(rows["key"][own].tolist(), rows["event"][own].tolist(), strict=True))
        assert len(changed) == own.stop - own.start, "a key twice"
        state[group] = (state[prev] if prev > 0 else {}) | changed
    events = made.events
    for event in np.flatnonzero((events["key"] >= 0) & (events["group"] > 0)).tolist():
        assert state[events["group"][event]][events["key"][event]] == event
    assert (events["key"][events["group"] < 0] >= MEMBER).all(), "outliers are members of before"
    before = events["replaces"] >= 0
    assert (events["key"][events["replaces"][before]] == events["key"][before]).all()
    assert (events["room"][events["replaces"][before]] == events["room"][before]).all()


def test_the_page_says_which_goals_were_reached() -> None:
    cost = Cost(300.0, 500.0, 1.0, 3_000_000_000)
    large = Large(
        scale=1.0,
        machine={"Processor": "2 cores, test"},
        made={"rooms": 3},
        builds=[
            Built("everything", 1000, cost, cost, {"event_fields": 100.0, "as_of": 1.0}),
            Built("0.1% new events", 1, Cost(5.0, 5.0, 0.1, 0), Cost(10.0, 10.0, 0.1, 0), {"event_fields": 1.0}),
        ],
        rows={"bronze.events": 1000},
        changes=100,
        intervals=250,
        pairs=24_000_000,
        seconds=2.0,
        asked=10_000,
        asked_seconds=1.0,
        smaller=[(100, 60.0, 12.0)],
        events_of_commands=100,
        commands={"who-can-see": [0.5, 0.75, 4.0], "visible --room": [2.0, 3.5, 3.25]},
    )
    page = write(large)
    assert "| minutes for state and visibility | ≤ 15 | 10.0 | reached |" in page
    assert "| of that time after 0.1% new events | ≤ 5% | 2.5% | reached |" in page
    assert "| intervals for a change of membership or visibility | ≤ 2 | 2.50 | missed |" in page
    assert "| times Synapse's filter | ≥ 1,000 | 1,200 | reached |" in page
    assert "| s for the slowest command, of 100 events | ≤ 3 | 3.2 | missed |" in page
    assert "| `lakehouse who-can-see` | 0.75 (0.50 to 4.00) |" in page
    assert "| 100 | 60.0 | 12.0 | 20.0% |" in page
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1, block


def test_the_picture_says_how_cost_grows() -> None:
    lines = {"everything": [(1_000, 2.0), (10_000, 20.0), (100_000, 200.0)], "new": [(1_000, 3.0), (100_000, 3.0)]}
    picture = ElementTree.fromstring(slope.draw(lines))
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"everything: slope 1.00", "new: slope 0.00", "1,000", "100,000", "100"} <= set(texts)
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))) == 5
