"""Other rows are evidence of events that Synapse lost."""

from itertools import pairwise

import pytest

from synapse_lakehouse.streams import stream_tables
from synapse_lakehouse.streams.gaps import locate_orphaned_json
from tests.support.stream_lake import Database, MeasuredLake


@pytest.mark.heavy
def test_other_rows_are_evidence_of_earlier_losses(open_measured_lake: tuple[MeasuredLake, Database]) -> None:
    lake, source = open_measured_lake
    (join_event,) = source.fetch_one(
        "select event_id from room_memberships where membership = 'join' order by event_id limit 1"
    )
    (topic_event,) = source.fetch_one(
        "select event_id from current_state_delta_stream join events using (event_id)"
        " where stream_id = stream_ordering and events.type = 'm.room.topic' order by stream_id limit 1"
    )
    (message, previous_message) = source.fetch_one(
        "select events.event_id, prev.event_id from events join event_edges using (event_id)"
        " join events prev on prev_event_id = prev.event_id and prev.stream_ordering = events.stream_ordering - 1"
        " join event_edges following on following.prev_event_id = events.event_id join events next"
        " on following.event_id = next.event_id and next.stream_ordering = events.stream_ordering + 1"
        " where events.type = 'm.room.message' order by events.stream_ordering limit 1"
    )
    lost_ids = {}
    for evidence, event in (("membership", join_event), ("delta", topic_event), ("event_json", message)):
        (lost_ids[evidence],) = source.fetch_one(
            "delete from events where event_id = %s returning stream_ordering", event
        )
    source.run("delete from event_json where event_id = any(%s)", [[join_event, topic_event, previous_message]])
    source.run("delete from current_state_delta_stream where event_id = %s", [join_event])
    # The tables have equal row counts, so counting finds nothing. A removal of state has no event, so none was lost.
    assert source.fetch_one("select count(*) from event_json") == source.fetch_one("select count(*) from events")
    room, removal_id = source.fetch_one("select room_id, nextval('events_stream_seq') from rooms limit 1")
    source.run(
        "insert into current_state_delta_stream (stream_id, room_id, type, state_key, event_id, prev_event_id)"
        " values (%s, %s, 'm.room.topic', '', null, null)", [removal_id, room],
    )  # fmt: skip
    source.store(), source.store("backfill")

    findings = lake.examine()
    assert {gap for gap in findings if gap[4] == "lost"} == {
        ("events", "events", id_, id_, "lost", evidence, None) for evidence, id_ in lost_ids.items()
    }
    assert not any(gap[2] <= removal_id <= gap[3] for gap in findings if gap[0] == "events")


@pytest.mark.heavy
@pytest.mark.parametrize("large_table_rows", [0, stream_tables.LARGE_TABLE_ROWS], ids=["by changes", "as a whole"])
def test_json_is_evidence_of_consecutive_lost_events(
    open_measured_lake: tuple[MeasuredLake, Database], monkeypatch: pytest.MonkeyPatch, large_table_rows: int
) -> None:
    monkeypatch.setattr(stream_tables, "LARGE_TABLE_ROWS", large_table_rows)
    lake, source = open_measured_lake
    source.store(), source.store("backfill")
    lake.examine()
    *_, (last_event, previous_event) = source.run(
        "select event_id, lag(event_id) over (order by stream_ordering) from events"
        " where state_key is null and stream_ordering > 0 order by stream_ordering"
    ).fetchall()
    chain = [last_event]
    for _ in range(4):
        chain.append(source.write(last_event, source.reserve()))
        source.run("insert into event_edges (event_id, prev_event_id, is_state) values (%s, %s, false)", chain[:-3:-1])
    source.reserve()
    _, first, second, _, _ = chain
    lost_ids = [
        source.fetch_one("delete from events where event_id = %s returning stream_ordering", event)[0]
        for event in (first, second)
    ]
    source.run("delete from event_json where event_id = any(%s)", [[previous_event, chain[-1]]])
    source.store(), source.store("backfill")

    findings = {gap for gap in lake.examine() if gap[0] == "events"}
    assert findings == {
        ("events", "events", *lost_ids, "lost", "event_json", None),
        ("events", None, lost_ids[1] + 3, lost_ids[1] + 3, "rolled_back", None, None),
    }


def link(source: Database, *chain: str) -> None:
    """Make each event of ``chain`` refer to the event before it."""
    for parent, child in pairwise(chain):
        source.run(
            "insert into event_edges (event_id, prev_event_id, is_state) values (%s, %s, false)", [child, parent]
        )


@pytest.mark.heavy
def test_evidence_with_an_id_leaves_rolled_back_ids(open_measured_lake: tuple[MeasuredLake, Database]) -> None:
    lake, source = open_measured_lake
    source.store(), source.store("backfill")
    lake.examine()
    last, room = source.fetch_one(
        "select event_id, room_id from events where state_key is null order by stream_ordering desc limit 1"
    )
    ids = [source.reserve() for _ in range(9)]
    join_event, _, event_after_join, topic_event, _, event_after_topic, first, second, end = [
        source.write(last, id_) if number not in (1, 4) else "" for number, id_ in enumerate(ids)
    ]
    link(source, last, join_event, event_after_join, topic_event, event_after_topic, first, second, end)
    source.run(
        "update room_memberships set event_id = %s, event_stream_ordering = %s"
        " where event_id = (select min(event_id) from room_memberships)", [join_event, ids[0]],
    )  # fmt: skip
    # A change of state has the ID of the first event in its transaction.
    for event, id_ in ((topic_event, ids[3]), (first, ids[6]), (second, ids[6])):
        source.run(
            "insert into current_state_delta_stream (stream_id, room_id, type, state_key, event_id, prev_event_id)"
            " values (%s, %s, 'm.room.topic', %s, %s, null)", [id_, room, event, event],
        )  # fmt: skip
    source.run("delete from events where event_id = any(%s)", [[join_event, topic_event, first, second]])
    source.store(), source.store("backfill")

    assert {gap[2:6] for gap in lake.examine() if gap[0] == "events"} == {
        (ids[0], ids[0], "lost", "membership"),
        (ids[1], ids[1], "rolled_back", None),
        (ids[3], ids[3], "lost", "delta"),
        (ids[4], ids[4], "rolled_back", None),
        (ids[6], ids[6], "lost", "delta"),
        (ids[7], ids[7], "lost", "event_json"),
    }


@pytest.mark.heavy
def test_old_orphaned_json_hides_no_lost_event(
    open_measured_lake: tuple[MeasuredLake, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate_orphaned_json, "_MAXIMUM_ORPHANS", 3)
    lake, source = open_measured_lake
    (last,) = source.fetch_one(
        "select event_id from events where state_key is null order by stream_ordering desc limit 1"
    )
    source.run(
        "insert into event_json select '$!' || number, room_id, internal_metadata, json, format_version"
        " from event_json cross join generate_series(1, 3) number where event_id = %s", [last],
    )  # fmt: skip
    source.store(), source.store("backfill")
    lake.examine()

    ids = [source.reserve() for _ in range(3)]
    link(source, last, *(source.write(last, id_) for id_ in ids))
    backfill_ids = [-source.reserve("events_backfill_stream_seq") for _ in range(3)]
    link(source, *(source.write(last, id_) for id_ in reversed(backfill_ids)))
    lost_ids = [ids[1], backfill_ids[1]]
    source.run("delete from events where stream_ordering = any(%s)", [lost_ids])
    source.store(), source.store("backfill")

    assert {gap[:6] for gap in lake.examine() if gap[0] in ("events", "backfill")} == {
        ("events", "events", ids[1], ids[1], "lost", "event_json"),
        ("backfill", "events", backfill_ids[1], backfill_ids[1], "lost", "event_json"),
    }
