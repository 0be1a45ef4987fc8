"""IDs of purged events are purged gaps; other missing IDs of the room are lost."""

import subprocess
from pathlib import Path

import pytest

from sample.environment import synapse_python
from tests.support.stream_lake import Database, Examined, id_ranges


@pytest.mark.heavy
def test_a_purge_explains_only_ids_below_its_depth(examined_lake: tuple[Examined, Database]) -> None:
    examined, source = examined_lake
    first, second = (source.reserve("account_data_sequence") for _ in range(2))
    (owner,) = source.fetch_one("select user_id from account_data order by stream_id desc limit 1")
    moves = (
        "update account_data set stream_id = %s where user_id = %s"
        " and stream_id = (select max(stream_id) from account_data)"
    )
    source.run(moves, [second, owner])
    source.store(), source.store("backfill")
    examined.examine()

    (room,) = source.fetch_one(
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
    (lost,) = source.fetch_one(
        "delete from events where stream_ordering = (select stream_ordering from events where room_id = %s"
        " and state_key is null order by depth desc limit 1) returning stream_ordering", room,
    )  # fmt: skip
    source.run(moves, [first, owner])

    actual = {
        (row[0], row[1], row[2], row[3], row[4], row[6]) for row in examined.examine() if row[4] in ("lost", "purged")
    }
    assert {row for row in actual if row[4] == "lost"} == {("events", "events", lost, lost, "lost", None)}
    of_purge = {(row[2], row[3]) for row in actual if row[4] == "purged" and row[5] == "history_purged"}
    assert of_purge == id_ranges([id_ for id_ in purged if id_ > 0]) | id_ranges([id_ for id_ in purged if id_ < 0])


@pytest.mark.heavy
def test_backward_extremities_are_evidence_of_a_purge(examined_lake: tuple[Examined, Database]) -> None:
    examined, source = examined_lake
    rooms = source.run(
        "select room_id, array_agg(distinct depth order by depth) from events where state_key is null"
        " and stream_ordering > 0 group by room_id order by count(distinct depth) desc limit 2"
    ).fetchall()
    (full, depths), (spared, later) = rooms
    source.purge(spared, later[-2], spares="%")
    source.store(), source.store("backfill")
    examined.examine()

    # A purge by retention leaves no task; an outlier that is stored afterwards sets the minimum depth to 0.
    deleted = [*source.purge(full, depths[-2]), *source.purge(spared, later[len(later) // 2])]
    source.run("update room_depth set min_depth = 0 where room_id = any(%s)", [[full, spared]])
    lost, writer = source.fetch_one(
        "delete from events where stream_ordering = (select max(stream_ordering) from events where room_id = %s"
        " and state_key is null) returning stream_ordering, instance_name", full,
    )  # fmt: skip
    twice = source.reserve("account_data_sequence")
    source.run(
        "update account_data set stream_id = %s, instance_name = null where stream_id in"
        " (select stream_id from account_data order by stream_id desc limit 2)", [twice],
    )  # fmt: skip
    findings = examined.examine()
    positions = examined.app().catalog.load_table("audit.stream_positions").scan().to_arrow().to_pylist()
    assert sorted(fault for row in positions for fault in row["faults"]) == [
        f"duplicate {twice} in account_data (worker1)",
        f"lost {lost} in events ({writer})",
    ]
    assert {gap[2:] for gap in findings if gap[4] == "lost"} == {(lost, lost, "lost", "accepted_row", None)}
    explained = {gap[2:4] for gap in findings if gap[6] == "history_purged"}
    assert explained == id_ranges([id_ for id_ in deleted if id_ > 0]) | id_ranges([id_ for id_ in deleted if id_ < 0])


@pytest.mark.heavy
def test_ids_that_retention_purges_are_not_lost(
    examined_lake: tuple[Examined, Database], source_copy: str, tmp_path: Path
) -> None:
    examined, source = examined_lake
    source.store(), source.store("backfill")
    examined.examine()
    # This process is alone, so it takes the other writers for removed ones.
    source.run("create table saved_positions as select * from stream_positions")
    tasks = "select count(*) from scheduled_tasks where action = 'purge_history'"
    before, purges = (
        {id_ for (id_,) in source.run("select stream_ordering from events").fetchall()},
        source.fetch_one(tasks),
    )
    subprocess.run([synapse_python(), "-m", "tests.spark.synapse_retention", source_copy, tmp_path], check=True)
    source.run("insert into stream_positions select * from saved_positions on conflict do nothing")
    deleted = before - {id_ for (id_,) in source.run("select stream_ordering from events").fetchall()}
    assert len(deleted) > 100
    assert source.fetch_one(tasks) == purges, "retention leaves no task"
    source.run("update room_depth set min_depth = 0")

    findings = {gap[2:] for gap in examined.examine() if gap[0] in ("events", "backfill") and gap[4] != "in_flight"}
    assert {gap[2:] for gap in findings} == {("purged", "accepted_row", "history_purged")}
    assert {gap[:2] for gap in findings} == id_ranges([id_ for id_ in deleted if id_ > 0]) | id_ranges(
        [id_ for id_ in deleted if id_ < 0]
    )
