"""IDs of purged events are purged gaps; other missing IDs of the room are lost."""

import subprocess
from pathlib import Path

import pytest

from sample.environment import synapse_python
from tests.support.stream_lake import Database, MeasuredLake, id_ranges


@pytest.mark.heavy
def test_a_purge_explains_only_ids_below_its_depth(open_measured_lake: tuple[MeasuredLake, Database]) -> None:
    lake, source = open_measured_lake
    first_id, second_id = (source.reserve("account_data_sequence") for _ in range(2))
    (owner,) = source.fetch_one("select user_id from account_data order by stream_id desc limit 1")
    set_newest_id = (
        "update account_data set stream_id = %s where user_id = %s"
        " and stream_id = (select max(stream_id) from account_data)"
    )
    source.run(set_newest_id, [second_id, owner])
    source.store(), source.store("backfill")
    lake.examine()

    (room,) = source.fetch_one(
        "select room_id from events where state_key is null group by room_id order by count(*) desc limit 1"
    )
    depths = source.run(
        "select depth from events where room_id = %s and state_key is null group by depth order by depth", [room]
    ).fetchall()
    purged_ids = source.purge(room, depths[len(depths) // 2][0])
    source.run("update room_depth set min_depth = 1 where room_id = %s", [room])
    source.run(
        "insert into scheduled_tasks (id, action, status, timestamp, resource_id)"
        " values ('p', 'purge_history', 'complete', extract(epoch from now() + interval '1 day') * 1000, %s)", [room]
    )  # fmt: skip
    (lost_id,) = source.fetch_one(
        "delete from events where stream_ordering = (select stream_ordering from events where room_id = %s"
        " and state_key is null order by depth desc limit 1) returning stream_ordering", room,
    )  # fmt: skip
    source.run(set_newest_id, [first_id, owner])

    actual = {
        (row[0], row[1], row[2], row[3], row[4], row[6]) for row in lake.examine() if row[4] in ("lost", "purged")
    }
    assert {row for row in actual if row[4] == "lost"} == {("events", "events", lost_id, lost_id, "lost", None)}
    purged_ranges = {(row[2], row[3]) for row in actual if row[4] == "purged" and row[5] == "history_purged"}
    assert purged_ranges == id_ranges([id_ for id_ in purged_ids if id_ > 0]) | id_ranges(
        [id_ for id_ in purged_ids if id_ < 0]
    )


@pytest.mark.heavy
def test_backward_extremities_are_evidence_of_a_purge(open_measured_lake: tuple[MeasuredLake, Database]) -> None:
    lake, source = open_measured_lake
    rooms = source.run(
        "select room_id, array_agg(distinct depth order by depth) from events where state_key is null"
        " and stream_ordering > 0 group by room_id order by count(distinct depth) desc limit 2"
    ).fetchall()
    (purged_room, depths), (outlier_room, outlier_depths) = rooms
    source.purge(outlier_room, outlier_depths[-2], retained_senders="%")
    source.store(), source.store("backfill")
    lake.examine()

    # A purge by retention leaves no task. An outlier that is stored later sets the minimum depth to 0.
    deleted_ids = [
        *source.purge(purged_room, depths[-2]),
        *source.purge(outlier_room, outlier_depths[len(outlier_depths) // 2]),
    ]
    source.run("update room_depth set min_depth = 0 where room_id = any(%s)", [[purged_room, outlier_room]])
    lost_id, writer = source.fetch_one(
        "delete from events where stream_ordering = (select max(stream_ordering) from events where room_id = %s"
        " and state_key is null) returning stream_ordering, instance_name", purged_room,
    )  # fmt: skip
    duplicate_id = source.reserve("account_data_sequence")
    source.run(
        "update account_data set stream_id = %s, instance_name = null where stream_id in"
        " (select stream_id from account_data order by stream_id desc limit 2)", [duplicate_id],
    )  # fmt: skip
    findings = lake.examine()
    positions = lake.app().catalog.load_table("audit.stream_positions").scan().to_arrow().to_pylist()
    assert sorted(fault for row in positions for fault in row["faults"]) == [
        f"duplicate {duplicate_id} in account_data (worker1)",
        f"lost {lost_id} in events ({writer})",
    ]
    assert {gap[2:] for gap in findings if gap[4] == "lost"} == {(lost_id, lost_id, "lost", "accepted_row", None)}
    purged_ranges = {gap[2:4] for gap in findings if gap[6] == "history_purged"}
    assert purged_ranges == id_ranges([id_ for id_ in deleted_ids if id_ > 0]) | id_ranges(
        [id_ for id_ in deleted_ids if id_ < 0]
    )


@pytest.mark.heavy
def test_ids_that_retention_purges_are_not_lost(
    open_measured_lake: tuple[MeasuredLake, Database], source_copy: str, tmp_path: Path
) -> None:
    lake, source = open_measured_lake
    source.store(), source.store("backfill")
    lake.examine()
    # This Synapse has one process, and removes the positions of the other writers.
    source.run("create table saved_positions as select * from stream_positions")
    tasks = "select count(*) from scheduled_tasks where action = 'purge_history'"
    ids_before, purge_tasks = (
        {id_ for (id_,) in source.run("select stream_ordering from events").fetchall()},
        source.fetch_one(tasks),
    )
    subprocess.run([synapse_python(), "-m", "tests.spark.synapse_retention", source_copy, tmp_path], check=True)
    source.run("insert into stream_positions select * from saved_positions on conflict do nothing")
    deleted_ids = ids_before - {id_ for (id_,) in source.run("select stream_ordering from events").fetchall()}
    assert len(deleted_ids) > 100
    assert source.fetch_one(tasks) == purge_tasks, "retention leaves no task"
    source.run("update room_depth set min_depth = 0")

    findings = {gap[2:] for gap in lake.examine() if gap[0] in ("events", "backfill") and gap[4] != "in_flight"}
    assert {gap[2:] for gap in findings} == {("purged", "accepted_row", "history_purged")}
    assert {gap[:2] for gap in findings} == id_ranges([id_ for id_ in deleted_ids if id_ > 0]) | id_ranges(
        [id_ for id_ in deleted_ids if id_ < 0]
    )
