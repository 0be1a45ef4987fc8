"""The rules about lost events, on events of the sample: evidence against outliers, and the range of the ID."""

import random

import psycopg

from synapse_lakehouse.streams.gaps.lost_event_ranges import LocalEdge, compute_id_ranges

SERVER = "synapse.example"
EDGES = """
select edges.event_id, edges.prev_event_id, later.stream_ordering, earlier.stream_ordering
from event_edges edges join events later using (event_id)
left join events earlier on earlier.event_id = edges.prev_event_id
where substr(later.sender, strpos(later.sender, ':') + 1) = %s and later.type <> 'm.room.member' and not later.outlier
  and later.event_id not in (select event_id from ex_outlier_stream)
"""
NO_OUTLIERS = """
select event_id from event_to_state_groups
union select event_id from event_forward_extremities
union select edges.prev_event_id from event_edges edges join events using (event_id)
    where not outlier and edges.prev_event_id not in (select event_id from event_backward_extremities)
"""


def test_the_range_of_any_lost_event_contains_its_id(sample_dsn: str) -> None:
    with psycopg.connect(sample_dsn) as source:
        events = source.execute("select event_id, stream_ordering, room_id from events").fetchall()
        edges = source.execute(EDGES, [SERVER]).fetchall()
    ids, rooms = ({event: values[n] for event, *values in events} for n in (0, 1))
    backfilled = {room for _, stream_id, room in events if stream_id < 0}
    rng, narrow = random.Random(3), 0
    for share in (0.001, 0.05, 0.5):
        lost = {event for event in ids if rng.random() < share}
        local_edges = [
            LocalEdge(child, parent, None if child in lost else child_id, None if parent in lost else parent_id)
            for child, parent, child_id, parent_id in edges
            if (rooms[child] not in backfilled if child in lost else child_id > 0)
        ]
        for event, (low, high) in compute_id_ranges(lost, local_edges, {}).items():
            assert low is None or low <= ids[event], event
            assert high is None or ids[event] <= high, event
            narrow += low is not None and high is not None
    assert narrow > 1000


def test_the_rules_separate_events_from_outliers(sample_dsn: str) -> None:
    with psycopg.connect(sample_dsn) as source:
        events = source.execute("select event_id, outlier from events").fetchall()
        event_ids = {event for (event,) in source.execute(NO_OUTLIERS).fetchall()}
    assert {event for event, outlier in events if not outlier} <= event_ids
    assert not {event for event, outlier in events if outlier} & event_ids
