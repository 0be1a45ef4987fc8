"""Runs find gaps of every class with their evidence, and report nothing for Synapse's normal work."""

import pytest

from synapse_lakehouse.streams import stream_tables
from tests.support.stream_lake import WRITERS, Database, Found, MeasuredLake, id_ranges


@pytest.mark.heavy
@pytest.mark.parametrize("large_table_rows", [0, stream_tables.LARGE_TABLE_ROWS], ids=["by changes", "as a whole"])
def test_every_class_is_found_with_its_evidence(
    open_measured_lake: tuple[MeasuredLake, Database], monkeypatch: pytest.MonkeyPatch, large_table_rows: int
) -> None:
    monkeypatch.setattr(stream_tables, "LARGE_TABLE_ROWS", large_table_rows)
    lake, source = open_measured_lake
    source.store()
    source.store("backfill")
    first_gaps = lake.examine()
    assert {row[4] for row in first_gaps} == {"rolled_back", "purged"}
    rolled_back_id = max(row[3] for row in first_gaps if row[0] == "events" and row[4] == "rolled_back")

    rooms = source.run(
        "select room_id, max(depth) from events where state_key is null and stream_ordering > 0"
        " group by room_id having count(*) > 8 order by count(*) desc limit 3"
    ).fetchall()
    (purged_room, purged_depth), (deleted_room, _), (other_room, _) = rooms
    (lost_event, lost_id), (moved_event, former_id) = source.run(
        "select event_id, stream_ordering from events where room_id = %s and state_key is null and stream_ordering > 0"
        " order by stream_ordering desc limit 2", [other_room],
    ).fetchall()  # fmt: skip

    written_id, expected = _work_normally(source, moved_event, former_id)
    purged_ids, deleted_ids = source.purge(purged_room, purged_depth), source.delete(deleted_room)
    for reason, ids in [("history_purged", purged_ids), ("room_deleted", deleted_ids)]:
        assert len(ids) > 3
        for sign, stream in ((1, "events"), (-1, "backfill")):
            stream_ids = [id_ for id_ in ids if id_ * sign > 0]
            expected |= {(stream, "events", *ends, "purged", "accepted_row", reason) for ends in id_ranges(stream_ids)}
    source.run("delete from events where event_id = %s", [lost_event])
    source.write(moved_event, rolled_back_id)
    expected |= _break_ids(source, moved_event, written_id) | {
        ("events", "events", lost_id, lost_id, "lost", "accepted_row", None),
        ("events", "events", rolled_back_id, rolled_back_id, "late", None, None),
    }
    source.store()
    source.store("backfill")
    in_flight_id = source.reserve()
    expected.add(("events", None, in_flight_id, in_flight_id, "in_flight", None, None))
    assert lake.examine() == expected


def _work_normally(source: Database, moved_event: str, former_id: int) -> tuple[int, Found]:
    """Roll back, fetch history, move an event to another ID, and advance receipts.

    Return the ID of a new event, and the gaps.
    """
    backfill = "events_backfill_stream_seq"
    source.reserve(), source.reserve()
    written_id = source.reserve()
    source.write(moved_event, written_id)
    fetched_id = -source.reserve(backfill)
    source.write(moved_event, -source.reserve(backfill))
    source.run(
        "update events set stream_ordering = %s, instance_name = 'persister2' where event_id = %s",
        [-source.reserve(backfill), moved_event],
    )
    source.run("update receipts_linearized set stream_id = nextval('receipts_sequence') where stream_id % 3 = 0")
    return written_id, {
        ("events", None, written_id - 2, written_id - 1, "rolled_back", None, None),
        ("backfill", None, fetched_id, fetched_id, "rolled_back", None, None),
        ("events", "events", former_id, former_id, "purged", "accepted_row", "second_life"),
    }


def _break_ids(source: Database, event_id: str, used_id: int) -> Found:
    """Use IDs twice, and move the newest receipt back to a free ID. Return the gaps."""
    shared_id = source.reserve("account_data_sequence")
    source.run("drop index events_stream_ordering cascade")
    source.write(event_id, used_id, "$twice")
    for table in ("account_data", "room_account_data"):
        source.run(
            f"update {table} set stream_id = %s where stream_id = (select min(stream_id) from {table})", [shared_id]
        )
    (highest_id,) = source.fetch_one("select max(stream_id) from receipts_linearized where stream_id < %s", 84)
    (free_id,) = source.fetch_one(
        "select min(id) from generate_series(2, 83) id where id not in (select stream_id from receipts_linearized)"
        " and mod(id, 3) <> 0"
    )
    source.run("update receipts_linearized set stream_id = %s where stream_id = %s", [free_id, highest_id])
    return {
        ("events", "events", used_id, used_id, "duplicate", None, None),
        ("account_data", None, shared_id, shared_id, "duplicate", None, None),
        ("receipts", "receipts_linearized", highest_id, highest_id, "lost", "other_id", None),
        ("receipts", "receipts_linearized", free_id, free_id, "late", None, None),
    }


@pytest.mark.heavy
def test_a_purge_beyond_an_idle_writer_keeps_the_bound(open_measured_lake: tuple[MeasuredLake, Database]) -> None:
    lake, source = open_measured_lake
    lake.examine()
    (idle_position, last_position) = source.fetch_one(
        "select min(stream_id), max(stream_id) from stream_positions where stream_name = 'events'"
    )
    assert lake.bound() == last_position
    (purged_id,) = source.fetch_one(
        "delete from events where stream_ordering = (select min(stream_ordering) from events"
        " where stream_ordering > %s and state_key is null) returning stream_ordering", idle_position,
    )  # fmt: skip
    assert purged_id < last_position
    (changed_id,) = source.fetch_one(
        "update events set sender = '@mallory:example.org' where stream_ordering = (select min(stream_ordering)"
        " from events where stream_ordering > 0) returning stream_ordering"
    )
    source.run("update events set outlier = not outlier where stream_ordering < 200")
    faults = {gap for gap in lake.examine() if gap[4] not in ("purged", "rolled_back", "in_flight", "lost")}
    assert faults == {("events", "events", changed_id, changed_id, "changed", "accepted_row", None)}
    assert lake.bound() == last_position


@pytest.mark.heavy
def test_a_late_row_is_found_while_a_writer_has_no_position(
    open_measured_lake: tuple[MeasuredLake, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, source = open_measured_lake
    source.store(), source.store("backfill")
    first_gaps = lake.examine()
    accepted_bound = lake.bound()
    late_id = max(row[3] for row in first_gaps if row[0] == "events" and row[4] == "rolled_back")
    (template_event,) = source.fetch_one(
        "select event_id from events where state_key is null and stream_ordering > 0 limit 1"
    )
    source.write(template_event, late_id)

    lake.settings = lake.settings.model_copy(
        update={"lakehouse_stream_writers": WRITERS.replace("persister2", "persister2,persister3")}
    )
    assert lake.examine() == {("events", "events", late_id, late_id, "late", None, None)}
    assert lake.bound() == accepted_bound


@pytest.mark.heavy
def test_rows_deleted_with_their_event_or_room_are_purged(open_measured_lake: tuple[MeasuredLake, Database]) -> None:
    lake, source = open_measured_lake
    event_table, room_table = "un_partial_stated_event_stream", "un_partial_stated_room_stream"
    (rejoined_room,), (remaining_room,), (purged_room,) = source.run(
        "select room_id from events where stream_ordering > 0 group by room_id"
        " having count(*) filter (where state_key is null) > 8 order by count(*) desc limit 3"
    ).fetchall()
    (moved_event,), (remaining_event,) = source.run(
        "select event_id from events where room_id = %s and state_key is null and stream_ordering > 0"
        " order by stream_ordering desc limit 2", [remaining_room],
    ).fetchall()  # fmt: skip
    (state_event,) = source.fetch_one(
        "select event_id from events where room_id = %s and type = 'm.room.create'", rejoined_room
    )
    for table in (event_table, room_table):
        source.run(f"delete from {table}")
        source.run("delete from stream_positions where stream_name = %s", [table])
    for stream_id, event in enumerate((moved_event, remaining_event, state_event), 2):
        source.run(f"insert into {event_table} values (%s, 'master', %s, false)", [stream_id, event])
    for stream_id, room in enumerate((rejoined_room, remaining_room, purged_room), 2):
        source.run(f"insert into {room_table} values (%s, 'master', %s)", [stream_id, room])
    for stream in (event_table, room_table):
        source.run(f"select setval('{stream}_sequence', 4)")
        source.run("insert into stream_positions values (%s, 'master', 4)", [stream])
    source.store(), source.store("backfill")
    lake.examine()

    # Correct: a row is deleted with its event or room. Fault: a row is deleted, and its event or room remains.
    source.run(
        "update events set stream_ordering = %s where event_id = %s",
        [-source.reserve("events_backfill_stream_seq"), moved_event],
    )
    source.join_again(rejoined_room)
    source.run("delete from events where room_id = %s and state_key is null", [purged_room])
    for table in (event_table, room_table):
        source.run(f"delete from {table}")
    source.store(), source.store("backfill")

    event_gap, room_gap = ((table.removesuffix("_stream"), table) for table in (event_table, room_table))
    assert {gap for gap in lake.examine() if gap[0] in (event_gap[0], room_gap[0])} == {
        (*event_gap, 2, 2, "purged", "accepted_row", "second_life"),
        (*event_gap, 3, 3, "lost", "accepted_row", None),
        (*event_gap, 4, 4, "purged", "accepted_row", "second_life"),
        (*room_gap, 2, 2, "purged", "accepted_row", "room_deleted"),
        (*room_gap, 3, 4, "lost", "accepted_row", None),
    }


@pytest.mark.heavy
def test_another_row_with_an_accepted_id_is_late(open_measured_lake: tuple[MeasuredLake, Database]) -> None:
    lake, source = open_measured_lake
    source.store(), source.store("backfill")
    lake.examine()
    (first_id,) = source.fetch_one("select min(stream_id) from current_state_delta_stream")
    source.run(
        "insert into current_state_delta_stream (stream_id, room_id, type, state_key, event_id, prev_event_id)"
        " select stream_id, room_id, 'm.room.topic', 'late', event_id, null from current_state_delta_stream"
        " where stream_id = %s limit 1", [first_id],
    )  # fmt: skip
    table = "current_state_delta_stream"
    assert lake.examine(publish=False) == {("events", table, first_id, first_id, "late", None, None)}
