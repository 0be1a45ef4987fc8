"""Every class of gap, produced in a database and found with its evidence; healthy work raises nothing."""

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from sample.environment import synapse_python
from synapse_lakehouse.streams import stream_tables
from synapse_lakehouse.streams.gaps import locate_orphaned_json
from tests.support.stream_lake import WRITERS, Database, Examined, Found


def ranges(ids: list[int]) -> set[tuple[int, int]]:
    """Runs of ids."""
    starts = [one for one in ids if one - 1 not in ids]
    return {(one, next(end for end in range(one, max(ids) + 2) if end + 1 not in ids)) for one in starts}


@pytest.mark.heavy
@pytest.mark.parametrize("large", [0, stream_tables.LARGE_TABLE_ROWS], ids=["by what changed", "as a whole"])
def test_every_class_is_found_with_its_witness(
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
    (lost, lost_id), (reborn, former_id) = source.run(
        "select event_id, stream_ordering from events where room_id = %s and state_key is null and stream_ordering > 0"
        " order by stream_ordering desc limit 2", [other_room],
    ).fetchall()  # fmt: skip
    backfill = "events_backfill_stream_seq"

    # Healthy work: rollbacks, history that is fetched, a purge, a deleted room, receipts that move on, work under way.
    source.reserve(), source.reserve()
    written = source.reserve()
    source.write(reborn, written)
    fetched = -source.reserve(backfill)
    source.write(reborn, -source.reserve(backfill))
    source.run(
        "update events set stream_ordering = %s, instance_name = 'persister2' where event_id = %s",
        [-source.reserve(backfill), reborn],
    )
    by_purge, by_deletion = source.purge(purged_room, purged_depth), source.delete(deleted_room)
    source.run("update receipts_linearized set stream_id = nextval('receipts_sequence') where stream_id % 3 = 0")
    shared = source.reserve("account_data_sequence")
    expected: Found = {
        ("events", None, written - 2, written - 1, "rolled_back", None, None),
        ("backfill", None, fetched, fetched, "rolled_back", None, None),
        ("events", "events", former_id, former_id, "purged", "accepted_row", "second_life"),
    }
    for reason, ids in [("history_purged", by_purge), ("room_deleted", by_deletion)]:
        assert len(ids) > 3
        for sign, stream in ((1, "events"), (-1, "backfill")):
            of_stream = [one for one in ids if one * sign > 0]
            expected |= {(stream, "events", *ends, "purged", "accepted_row", reason) for ends in ranges(of_stream)}

    # Faults: a row is lost, a gap is filled, ids are given twice, a key goes back.
    source.run("delete from events where event_id = %s", [lost])
    source.write(reborn, rolled_back)
    source.run("drop index events_stream_ordering cascade")
    source.write(reborn, written, "$twice")
    for table in ("account_data", "room_account_data"):
        source.run(
            f"update {table} set stream_id = %s where stream_id = (select min(stream_id) from {table})", [shared]
        )
    (highest,) = source.one("select max(stream_id) from receipts_linearized where stream_id < %s", 84)
    (free,) = source.one(
        "select min(id) from generate_series(2, 83) id where id not in (select stream_id from receipts_linearized)"
        " and mod(id, 3) <> 0"
    )
    source.run("update receipts_linearized set stream_id = %s where stream_id = %s", [free, highest])
    expected |= {
        ("events", "events", lost_id, lost_id, "lost", "accepted_row", None),
        ("events", "events", rolled_back, rolled_back, "late", None, None),
        ("events", "events", written, written, "duplicate", None, None),
        ("account_data", None, shared, shared, "duplicate", None, None),
        ("receipts", "receipts_linearized", highest, highest, "lost", "other_id", None),
        ("receipts", "receipts_linearized", free, free, "late", None, None),
    }
    source.store()
    source.store("backfill")
    under_way = source.reserve()
    expected.add(("events", None, under_way, under_way, "in_flight", None, None))
    assert examined.examine() == expected


@pytest.mark.heavy
def test_a_purge_beyond_an_idle_writer_s_position_takes_no_bound_back_and_a_closed_row_that_changed_is_told_of(
    examined_lake: tuple[Examined, Database],
) -> None:
    examined, source = examined_lake
    examined.examine()
    (idle, furthest) = source.one(
        "select min(stream_id), max(stream_id) from stream_positions where stream_name = 'events'"
    )
    assert examined.bound() == furthest
    (purged,) = source.one(
        "delete from events where stream_ordering = (select min(stream_ordering) from events"
        " where stream_ordering > %s and state_key is null) returning stream_ordering", idle,
    )  # fmt: skip
    assert purged < furthest
    (changed,) = source.one(
        "update events set sender = '@mallory:example.org' where stream_ordering = (select min(stream_ordering)"
        " from events where stream_ordering > 0) returning stream_ordering"
    )
    source.run("update events set outlier = not outlier where stream_ordering < 200")
    faults = {found for found in examined.examine() if found[4] not in ("purged", "rolled_back", "in_flight", "lost")}
    assert faults == {("events", "events", changed, changed, "changed", "accepted_row", None)}
    assert examined.bound() == furthest


@pytest.mark.heavy
def test_a_late_row_is_told_of_while_a_writer_has_no_position(
    examined_lake: tuple[Examined, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    examined, source = examined_lake
    source.store(), source.store("backfill")
    first = examined.examine()
    accepted = examined.bound()
    filled = max(row[3] for row in first if row[0] == "events" and row[4] == "rolled_back")
    (earlier,) = source.one("select event_id from events where state_key is null and stream_ordering > 0 limit 1")
    source.write(earlier, filled)

    examined.settings = examined.settings.model_copy(
        update={"lakehouse_stream_writers": WRITERS.replace("persister2", "persister2,persister3")}
    )
    assert examined.examine() == {("events", "events", filled, filled, "late", None, None)}
    assert examined.bound() == accepted


@pytest.mark.heavy
def test_a_purge_explains_no_message_that_is_gone_above_others_nor_two_writes_of_a_key_a_fault(
    examined_lake: tuple[Examined, Database],
) -> None:
    examined, source = examined_lake
    first, second = (source.reserve("account_data_sequence") for _ in range(2))
    (owner,) = source.one("select user_id from account_data order by stream_id desc limit 1")
    moves = (
        "update account_data set stream_id = %s where user_id = %s"
        " and stream_id = (select max(stream_id) from account_data)"
    )
    source.run(moves, [second, owner])
    source.store(), source.store("backfill")
    examined.examine()

    (room,) = source.one(
        "select room_id from events where state_key is null group by room_id order by count(*) desc limit 1"
    )
    depths = source.run(
        "select depth from events where room_id = %s and state_key is null group by depth order by depth", [room]
    ).fetchall()
    purged = source.purge(room, depths[len(depths) // 2][0])
    source.run("update room_depth set min_depth = 1 where room_id = %s", [room])
    source.run(
        "insert into scheduled_tasks (id, action, status, timestamp, resource_id)"
        " values ('p', 'purge_history', 'complete', extract(epoch from now() + interval '1 day') * 1000, %s)", [room]
    )  # fmt: skip
    (lost,) = source.one(
        "delete from events where stream_ordering = (select stream_ordering from events where room_id = %s"
        " and state_key is null order by depth desc limit 1) returning stream_ordering", room,
    )  # fmt: skip
    source.run(moves, [first, owner])

    found = {
        (row[0], row[1], row[2], row[3], row[4], row[6]) for row in examined.examine() if row[4] in ("lost", "purged")
    }
    assert {row for row in found if row[4] == "lost"} == {("events", "events", lost, lost, "lost", None)}
    of_purge = {(row[2], row[3]) for row in found if row[4] == "purged" and row[5] == "history_purged"}
    assert of_purge == ranges([one for one in purged if one > 0]) | ranges([one for one in purged if one < 0])


@pytest.mark.heavy
def test_what_went_with_an_event_or_a_room_that_is_back_is_no_fault_and_what_went_alone_is(
    examined_lake: tuple[Examined, Database],
) -> None:
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
    (state,) = source.one("select event_id from events where room_id = %s and type = 'm.room.create'", joined_again)
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

    # Legal: each of these went by the cascade from its event or room. Faults: nothing else of theirs has changed.
    source.run(
        "update events set stream_ordering = %s where event_id = %s",
        [-source.reserve("events_backfill_stream_seq"), reborn],
    )
    source.join_again(joined_again)
    source.run("delete from events where room_id = %s and state_key is null", [purged])
    for table in (of_event, of_room):
        source.run(f"delete from {table}")
    source.store(), source.store("backfill")

    event, room = ((one.removesuffix("_stream"), one) for one in (of_event, of_room))
    assert {found for found in examined.examine() if found[0] in (event[0], room[0])} == {
        (*event, 2, 2, "purged", "accepted_row", "second_life"),
        (*event, 3, 3, "lost", "accepted_row", None),
        (*event, 4, 4, "purged", "accepted_row", "second_life"),
        (*room, 2, 2, "purged", "accepted_row", "room_deleted"),
        (*room, 3, 4, "lost", "accepted_row", None),
    }


@pytest.mark.heavy
def test_other_rows_tell_of_events_that_were_lost_before_anybody_watched(
    examined_lake: tuple[Examined, Database],
) -> None:
    examined, source = examined_lake
    (member,) = source.one("select event_id from room_memberships where membership = 'join' order by event_id limit 1")
    (changed,) = source.one(
        "select event_id from current_state_delta_stream join events using (event_id)"
        " where stream_id = stream_ordering and events.type = 'm.room.topic' order by stream_id limit 1"
    )
    (message, other) = source.one(
        "select events.event_id, prev.event_id from events join event_edges using (event_id)"
        " join events prev on prev_event_id = prev.event_id and prev.stream_ordering = events.stream_ordering - 1"
        " join event_edges following on following.prev_event_id = events.event_id join events next"
        " on following.event_id = next.event_id and next.stream_ordering = events.stream_ordering + 1"
        " where events.type = 'm.room.message' order by events.stream_ordering limit 1"
    )
    lost = {}
    for evidence, event in (("membership", member), ("delta", changed), ("event_json", message)):
        (lost[evidence],) = source.one("delete from events where event_id = %s returning stream_ordering", event)
    source.run("delete from event_json where event_id = any(%s)", [[member, changed, other]])
    source.run("delete from current_state_delta_stream where event_id = %s", [member])
    # As many rows as events: counting does not tell. And a change of state that has no event is none that was lost.
    assert source.one("select count(*) from event_json") == source.one("select count(*) from events")
    room, removal = source.one("select room_id, nextval('events_stream_seq') from rooms limit 1")
    source.run(
        "insert into current_state_delta_stream (stream_id, room_id, type, state_key, event_id, prev_event_id)"
        " values (%s, %s, 'm.room.topic', '', null, null)", [removal, room],
    )  # fmt: skip
    source.store(), source.store("backfill")

    found = examined.examine()
    assert {one for one in found if one[4] == "lost"} == {
        ("events", "events", id_, id_, "lost", evidence, None) for evidence, id_ in lost.items()
    }
    assert not any(one[2] <= removal <= one[3] for one in found if one[0] == "events")


@pytest.mark.heavy
def test_what_a_purge_cut_off_tells_of_it_where_nothing_else_does(examined_lake: tuple[Examined, Database]) -> None:
    examined, source = examined_lake
    rooms = source.run(
        "select room_id, array_agg(distinct depth order by depth) from events where state_key is null"
        " and stream_ordering > 0 group by room_id order by count(distinct depth) desc limit 2"
    ).fetchall()
    (whole, depths), (spared, later) = rooms
    source.purge(spared, later[-2], spares="%")
    source.store(), source.store("backfill")
    examined.examine()

    # By retention, which leaves no task; an outlier that is stored afterwards brings the least depth down to 0.
    gone = [*source.purge(whole, depths[-2]), *source.purge(spared, later[len(later) // 2])]
    source.run("update room_depth set min_depth = 0 where room_id = any(%s)", [[whole, spared]])
    lost, writer = source.one(
        "delete from events where stream_ordering = (select max(stream_ordering) from events where room_id = %s"
        " and state_key is null) returning stream_ordering, instance_name", whole,
    )  # fmt: skip
    twice = source.reserve("account_data_sequence")
    source.run(
        "update account_data set stream_id = %s, instance_name = null where stream_id in"
        " (select stream_id from account_data order by stream_id desc limit 2)", [twice],
    )  # fmt: skip
    found = examined.examine()
    positions = examined.app().catalog.load_table("audit.stream_positions").scan().to_arrow().to_pylist()
    assert sorted(one for row in positions for one in row["faults"]) == [
        f"duplicate {twice} in account_data (worker1)",
        f"lost {lost} in events ({writer})",
    ]
    assert {one[2:] for one in found if one[4] == "lost"} == {(lost, lost, "lost", "accepted_row", None)}
    explained = {one[2:4] for one in found if one[6] == "history_purged"}
    assert explained == ranges([one for one in gone if one > 0]) | ranges([one for one in gone if one < 0])


@pytest.mark.heavy
def test_what_synapse_s_retention_purges_is_not_lost(
    examined_lake: tuple[Examined, Database], source_copy: str, tmp_path: Path
) -> None:
    examined, source = examined_lake
    source.store(), source.store("backfill")
    examined.examine()
    # As the only process it takes the others for writers that were removed.
    source.run("create table kept as select * from stream_positions")
    tasks = "select count(*) from scheduled_tasks where action = 'purge_history'"
    before, purges = {one for (one,) in source.run("select stream_ordering from events").fetchall()}, source.one(tasks)
    subprocess.run([synapse_python(), "-m", "tests.spark.synapse_retention", source_copy, tmp_path], check=True)
    source.run("insert into stream_positions select * from kept on conflict do nothing")
    gone = before - {one for (one,) in source.run("select stream_ordering from events").fetchall()}
    assert len(gone) > 100
    assert source.one(tasks) == purges, "it leaves no task"
    source.run("update room_depth set min_depth = 0")

    found = {one[2:] for one in examined.examine() if one[0] in ("events", "backfill") and one[4] != "in_flight"}
    assert {one[2:] for one in found} == {("purged", "accepted_row", "history_purged")}
    assert {one[:2] for one in found} == ranges([one for one in gone if one > 0]) | ranges(
        [one for one in gone if one < 0]
    )


@pytest.mark.heavy
def test_a_row_more_under_an_id_that_has_some_is_late(examined_lake: tuple[Examined, Database]) -> None:
    examined, source = examined_lake
    source.store(), source.store("backfill")
    examined.examine()
    (known,) = source.one("select min(stream_id) from current_state_delta_stream")
    source.run(
        "insert into current_state_delta_stream (stream_id, room_id, type, state_key, event_id, prev_event_id)"
        " select stream_id, room_id, 'm.room.topic', 'late', event_id, null from current_state_delta_stream"
        " where stream_id = %s limit 1", [known],
    )  # fmt: skip
    table = "current_state_delta_stream"
    assert examined.examine(publish=False) == {("events", table, known, known, "late", None, None)}


@pytest.mark.heavy
@pytest.mark.parametrize("large", [0, stream_tables.LARGE_TABLE_ROWS], ids=["by what changed", "as a whole"])
def test_json_tells_of_lost_events_in_a_row_however_many_events_lack_their_json(
    examined_lake: tuple[Examined, Database], monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(stream_tables, "LARGE_TABLE_ROWS", large)
    examined, source = examined_lake
    source.store(), source.store("backfill")
    examined.examine()
    *_, (before, other) = source.run(
        "select event_id, lag(event_id) over (order by stream_ordering) from events"
        " where state_key is null and stream_ordering > 0 order by stream_ordering"
    ).fetchall()
    chain = [before]
    for _ in range(4):
        chain.append(source.write(before, source.reserve()))
        source.run("insert into event_edges (event_id, prev_event_id, is_state) values (%s, %s, false)", chain[:-3:-1])
    source.reserve()
    _, first, second, _, _ = chain
    lost = [
        source.one("delete from events where event_id = %s returning stream_ordering", event)[0]
        for event in (first, second)
    ]
    source.run("delete from event_json where event_id = any(%s)", [[other, chain[-1]]])
    source.store(), source.store("backfill")

    found = {one for one in examined.examine() if one[0] == "events"}
    assert found == {
        ("events", "events", *lost, "lost", "event_json", None),
        ("events", None, lost[1] + 3, lost[1] + 3, "rolled_back", None, None),
    }


def link(source: Database, *chain: str) -> None:
    """Each event of ``chain`` points at the one before it."""
    for parent, child in pairwise(chain):
        source.run(
            "insert into event_edges (event_id, prev_event_id, is_state) values (%s, %s, false)", [child, parent]
        )


@pytest.mark.heavy
def test_an_event_that_others_name_with_its_id_takes_none_that_was_rolled_back_beside_it(
    examined_lake: tuple[Examined, Database],
) -> None:
    examined, source = examined_lake
    source.store(), source.store("backfill")
    examined.examine()
    last, room = source.one(
        "select event_id, room_id from events where state_key is null order by stream_ordering desc limit 1"
    )
    ids = [source.reserve() for _ in range(9)]
    joined, _, after_it, changed, _, after_that, first, second, end = [
        source.write(last, one) if number not in (1, 4) else "" for number, one in enumerate(ids)
    ]
    link(source, last, joined, after_it, changed, after_that, first, second, end)
    source.run(
        "update room_memberships set event_id = %s, event_stream_ordering = %s"
        " where event_id = (select min(event_id) from room_memberships)", [joined, ids[0]],
    )  # fmt: skip
    # A change of state has the id of the first event that was stored with its own.
    for event, id_ in ((changed, ids[3]), (first, ids[6]), (second, ids[6])):
        source.run(
            "insert into current_state_delta_stream (stream_id, room_id, type, state_key, event_id, prev_event_id)"
            " values (%s, %s, 'm.room.topic', %s, %s, null)", [id_, room, event, event],
        )  # fmt: skip
    source.run("delete from events where event_id = any(%s)", [[joined, changed, first, second]])
    source.store(), source.store("backfill")

    assert {one[2:6] for one in examined.examine() if one[0] == "events"} == {
        (ids[0], ids[0], "lost", "membership"),
        (ids[1], ids[1], "rolled_back", None),
        (ids[3], ids[3], "lost", "delta"),
        (ids[4], ids[4], "rolled_back", None),
        (ids[6], ids[6], "lost", "delta"),
        (ids[7], ids[7], "lost", "event_json"),
    }


@pytest.mark.heavy
def test_json_that_was_without_its_event_before_hides_no_event_that_is_lost_now(
    examined_lake: tuple[Examined, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate_orphaned_json, "_MAXIMUM_ORPHANS", 3)
    examined, source = examined_lake
    (last,) = source.one("select event_id from events where state_key is null order by stream_ordering desc limit 1")
    source.run(
        "insert into event_json select '$!' || number, room_id, internal_metadata, json, format_version"
        " from event_json cross join generate_series(1, 3) number where event_id = %s", [last],
    )  # fmt: skip
    source.store(), source.store("backfill")
    examined.examine()

    ids = [source.reserve() for _ in range(3)]
    link(source, last, *(source.write(last, one) for one in ids))
    backwards = [-source.reserve("events_backfill_stream_seq") for _ in range(3)]
    link(source, *(source.write(last, one) for one in reversed(backwards)))
    lost = [ids[1], backwards[1]]
    source.run("delete from events where stream_ordering = any(%s)", [lost])
    source.store(), source.store("backfill")

    assert {one[:6] for one in examined.examine() if one[0] in ("events", "backfill")} == {
        ("events", "events", ids[1], ids[1], "lost", "event_json"),
        ("backfill", "events", backwards[1], backwards[1], "lost", "event_json"),
    }
