"""Every class of gap, caused in a database and found with its evidence; normal work raises nothing."""

import pytest

from synapse_lakehouse.streams import stream_tables
from tests.support.stream_lake import WRITERS, Database, Examined, Found, id_ranges


@pytest.mark.heavy
@pytest.mark.parametrize("large", [0, stream_tables.LARGE_TABLE_ROWS], ids=["by changes", "as a whole"])
def test_every_class_is_found_with_its_evidence(
    examined_lake: tuple[Examined, Database], monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(stream_tables, "LARGE_TABLE_ROWS", large)
    examined, source = examined_lake
    source.store()
    source.store("backfill")
    first = examined.examine()
    assert {row[4] for row in first} == {"rolled_back", "purged"}
    rolled_back = max(row[3] for row in first if row[0] == "events" and row[4] == "rolled_back")

    rooms = source.run(
        "select room_id, max(depth) from events where state_key is null and stream_ordering > 0"
        " group by room_id having count(*) > 8 order by count(*) desc limit 3"
    ).fetchall()
    (purged_room, purged_depth), (deleted_room, _), (other_room, _) = rooms
    (lost, lost_id), (moved, former_id) = source.run(
        "select event_id, stream_ordering from events where room_id = %s and state_key is null and stream_ordering > 0"
        " order by stream_ordering desc limit 2", [other_room],
    ).fetchall()  # fmt: skip

    written, expected = _work_normally(source, moved, former_id)
    by_purge, by_deletion = source.purge(purged_room, purged_depth), source.delete(deleted_room)
    for reason, ids in [("history_purged", by_purge), ("room_deleted", by_deletion)]:
        assert len(ids) > 3
        for sign, stream in ((1, "events"), (-1, "backfill")):
            of_stream = [id_ for id_ in ids if id_ * sign > 0]
            expected |= {(stream, "events", *ends, "purged", "accepted_row", reason) for ends in id_ranges(of_stream)}
    source.run("delete from events where event_id = %s", [lost])
    source.write(moved, rolled_back)
    expected |= _break_ids(source, moved, written) | {
        ("events", "events", lost_id, lost_id, "lost", "accepted_row", None),
        ("events", "events", rolled_back, rolled_back, "late", None, None),
    }
    source.store()
    source.store("backfill")
    in_flight = source.reserve()
    expected.add(("events", None, in_flight, in_flight, "in_flight", None, None))
    assert examined.examine() == expected


def _work_normally(source: Database, moved: str, former_id: int) -> tuple[int, Found]:
    """Roll back, fetch history, move an event to another ID, and let receipts advance.

    Return the ID of a new event, and the gaps.
    """
    backfill = "events_backfill_stream_seq"
    source.reserve(), source.reserve()
    written = source.reserve()
    source.write(moved, written)
    fetched = -source.reserve(backfill)
    source.write(moved, -source.reserve(backfill))
    source.run(
        "update events set stream_ordering = %s, instance_name = 'persister2' where event_id = %s",
        [-source.reserve(backfill), moved],
    )
    source.run("update receipts_linearized set stream_id = nextval('receipts_sequence') where stream_id % 3 = 0")
    return written, {
        ("events", None, written - 2, written - 1, "rolled_back", None, None),
        ("backfill", None, fetched, fetched, "rolled_back", None, None),
        ("events", "events", former_id, former_id, "purged", "accepted_row", "second_life"),
    }


def _break_ids(source: Database, event_id: str, used: int) -> Found:
    """Use IDs twice, and move the newest receipt back to a free ID. Return the gaps."""
    shared = source.reserve("account_data_sequence")
    source.run("drop index events_stream_ordering cascade")
    source.write(event_id, used, "$twice")
    for table in ("account_data", "room_account_data"):
        source.run(
            f"update {table} set stream_id = %s where stream_id = (select min(stream_id) from {table})", [shared]
        )
    (highest,) = source.fetch_one("select max(stream_id) from receipts_linearized where stream_id < %s", 84)
    (free,) = source.fetch_one(
        "select min(id) from generate_series(2, 83) id where id not in (select stream_id from receipts_linearized)"
        " and mod(id, 3) <> 0"
    )
    source.run("update receipts_linearized set stream_id = %s where stream_id = %s", [free, highest])
    return {
        ("events", "events", used, used, "duplicate", None, None),
        ("account_data", None, shared, shared, "duplicate", None, None),
        ("receipts", "receipts_linearized", highest, highest, "lost", "other_id", None),
        ("receipts", "receipts_linearized", free, free, "late", None, None),
    }


@pytest.mark.heavy
def test_a_purge_beyond_an_idle_writer_keeps_the_bound(examined_lake: tuple[Examined, Database]) -> None:
    examined, source = examined_lake
    examined.examine()
    (idle, furthest) = source.fetch_one(
        "select min(stream_id), max(stream_id) from stream_positions where stream_name = 'events'"
    )
    assert examined.bound() == furthest
    (purged,) = source.fetch_one(
        "delete from events where stream_ordering = (select min(stream_ordering) from events"
        " where stream_ordering > %s and state_key is null) returning stream_ordering", idle,
    )  # fmt: skip
    assert purged < furthest
    (changed,) = source.fetch_one(
        "update events set sender = '@mallory:example.org' where stream_ordering = (select min(stream_ordering)"
        " from events where stream_ordering > 0) returning stream_ordering"
    )
    source.run("update events set outlier = not outlier where stream_ordering < 200")
    faults = {gap for gap in examined.examine() if gap[4] not in ("purged", "rolled_back", "in_flight", "lost")}
    assert faults == {("events", "events", changed, changed, "changed", "accepted_row", None)}
    assert examined.bound() == furthest


@pytest.mark.heavy
def test_a_late_row_is_found_while_a_writer_has_no_position(
    examined_lake: tuple[Examined, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    examined, source = examined_lake
    source.store(), source.store("backfill")
    first = examined.examine()
    accepted = examined.bound()
    filled = max(row[3] for row in first if row[0] == "events" and row[4] == "rolled_back")
    (earlier,) = source.fetch_one("select event_id from events where state_key is null and stream_ordering > 0 limit 1")
    source.write(earlier, filled)

    examined.settings = examined.settings.model_copy(
        update={"lakehouse_stream_writers": WRITERS.replace("persister2", "persister2,persister3")}
    )
    assert examined.examine() == {("events", "events", filled, filled, "late", None, None)}
    assert examined.bound() == accepted


@pytest.mark.heavy
def test_rows_deleted_with_their_event_or_room_are_purged(examined_lake: tuple[Examined, Database]) -> None:
    examined, source = examined_lake
    of_event, of_room = "un_partial_stated_event_stream", "un_partial_stated_room_stream"
    (joined_again,), (stays,), (purged,) = source.run(
        "select room_id from events where stream_ordering > 0 group by room_id"
        " having count(*) filter (where state_key is null) > 8 order by count(*) desc limit 3"
    ).fetchall()
    (reborn,), (alone,) = source.run(
        "select event_id from events where room_id = %s and state_key is null and stream_ordering > 0"
        " order by stream_ordering desc limit 2", [stays],
    ).fetchall()  # fmt: skip
    (state,) = source.fetch_one(
        "select event_id from events where room_id = %s and type = 'm.room.create'", joined_again
    )
    for table in (of_event, of_room):
        source.run(f"delete from {table}")
        source.run("delete from stream_positions where stream_name = %s", [table])
    for place, event in enumerate((reborn, alone, state), 2):
        source.run(f"insert into {of_event} values (%s, 'master', %s, false)", [place, event])
    for place, room in enumerate((joined_again, stays, purged), 2):
        source.run(f"insert into {of_room} values (%s, 'master', %s)", [place, room])
    for stream in (of_event, of_room):
        source.run(f"select setval('{stream}_sequence', 4)")
        source.run("insert into stream_positions values (%s, 'master', 4)", [stream])
    source.store(), source.store("backfill")
    examined.examine()

    # Legal: a row deleted by the cascade from its event or room. A fault: a row deleted while its event or room stayed.
    source.run(
        "update events set stream_ordering = %s where event_id = %s",
        [-source.reserve("events_backfill_stream_seq"), reborn],
    )
    source.join_again(joined_again)
    source.run("delete from events where room_id = %s and state_key is null", [purged])
    for table in (of_event, of_room):
        source.run(f"delete from {table}")
    source.store(), source.store("backfill")

    event, room = ((table.removesuffix("_stream"), table) for table in (of_event, of_room))
    assert {gap for gap in examined.examine() if gap[0] in (event[0], room[0])} == {
        (*event, 2, 2, "purged", "accepted_row", "second_life"),
        (*event, 3, 3, "lost", "accepted_row", None),
        (*event, 4, 4, "purged", "accepted_row", "second_life"),
        (*room, 2, 2, "purged", "accepted_row", "room_deleted"),
        (*room, 3, 4, "lost", "accepted_row", None),
    }


@pytest.mark.heavy
def test_another_row_with_an_accepted_id_is_late(examined_lake: tuple[Examined, Database]) -> None:
    examined, source = examined_lake
    source.store(), source.store("backfill")
    examined.examine()
    (first_id,) = source.fetch_one("select min(stream_id) from current_state_delta_stream")
    source.run(
        "insert into current_state_delta_stream (stream_id, room_id, type, state_key, event_id, prev_event_id)"
        " select stream_id, room_id, 'm.room.topic', 'late', event_id, null from current_state_delta_stream"
        " where stream_id = %s limit 1", [first_id],
    )  # fmt: skip
    table = "current_state_delta_stream"
    assert examined.examine(publish=False) == {("events", table, first_id, first_id, "late", None, None)}
