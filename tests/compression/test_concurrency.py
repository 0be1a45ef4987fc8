"""Compression runs at the same time as Synapse, readers and other compressors."""

from dataclasses import replace
from typing import Any

import psycopg
import pytest

from synapse_lakehouse.cli.compression import compress_actions
from synapse_lakehouse.compressor.algorithm.state_groups import NONE
from synapse_lakehouse.compressor.backpressure import Backpressure
from synapse_lakehouse.compressor.postgres import connection as connections
from synapse_lakehouse.compressor.postgres import writer as postgres_writer
from synapse_lakehouse.compressor.postgres.transaction import rewrite_groups
from synapse_lakehouse.compressor.record_outcome import OutcomeRow, compress_and_record
from tests.compression.conftest import BEST, Compress, rows
from tests.support.state_database import all_states, read_state
from tests.support.state_rooms import World


def test_unreferenced_groups_are_deleted_on_request_only(compress: Compress, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as connection:
        connection.execute("delete from state_groups_pending_deletion")
        unreferenced = connection.execute(
            "select id, room_id from state_groups where id not in (select state_group from event_to_state_groups)"
            " and id not in (select prev_state_group from state_group_edges) order by room_id limit 20"
        ).fetchall()
        unreferenced_ids, pending = {group for group, _ in unreferenced}, unreferenced[0][0]
        selected = [argument for room in {room for _, room in unreferenced[:-1]} for argument in ("--room", room)]
        connection.execute(
            "insert into state_groups_pending_deletion (state_group, insertion_ts) values (%s, 1)", [pending]
        )
        before = read_state(source_copy)
        options = (*BEST, *selected, "--yes")
        rows(compress(source_copy, "apply", *options, "--format", "json"))
        after = read_state(source_copy)
        for group in unreferenced_ids:
            assert after[0].get(group) == before[0].get(group)
            assert after[1].get(group) == before[1].get(group)
        assert not unreferenced_ids & set(after[0].values())
        assert connection.execute("select count(*) from state_groups_pending_deletion").fetchone() == (1,)

        result = rows(compress(source_copy, "apply", *options, "--hand-over-unreferenced", "--format", "json"))
        marked_groups = {
            group for (group,) in connection.execute("select state_group from state_groups_pending_deletion")
        }
        assert {group for group, room in unreferenced if room in selected} <= marked_groups
        assert len(marked_groups) == 1 + sum(row["handed_over"] for row in result)
        used_groups = {group for (group,) in connection.execute("select state_group from event_to_state_groups")}
        assert not marked_groups & used_groups
        assert all(group in marked_groups for group, prev in after[0].items() if prev in marked_groups)


def test_a_room_purged_meanwhile_stops_no_other_room(
    compress: Compress, source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as connection:
        largest_rooms_sql = "select room_id from state_groups group by room_id order by count(*) desc, room_id limit 2"
        selected = [room for (room,) in connection.execute(largest_rooms_sql.encode())]

        def compress_and_purge(room: str, *arguments: Any) -> OutcomeRow:
            row = compress_and_record(room, *arguments)
            if room == selected[0]:
                connection.execute("delete from state_groups where room_id = %s", [room])
            return row

        monkeypatch.setattr(compress_actions, "compress_and_record", compress_and_purge)
        options = ("--room", selected[0], "--room", selected[1], "--hand-over-unreferenced", "--format", "json")
        result = rows(compress(source_copy, "apply", *BEST, *options, "--yes"))
    assert [(row["room_id"], row["skipped"]) for row in result] == [(room, None) for room in selected]
    assert result[0]["handed_over"] == 0


def test_chains_keep_the_limit_despite_pending_groups(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synapse marks groups for deletion while the plan is applied."""
    dsn, world = rooms
    room = "!0:it's.example"
    room_groups = [group for group, name in world.groups.items() if name == room]
    pending = room_groups[20::15]

    def mark_and_rewrite(*arguments: Any) -> Any:
        with psycopg.connect(dsn) as synapse:
            synapse.execute(
                "insert into state_groups_pending_deletion (state_group, insertion_ts) select unnest(%s::bigint[]), 1"
                " on conflict do nothing",
                [pending],
            )
        return rewrite_groups(*arguments)

    monkeypatch.setattr(postgres_writer, "rewrite_groups", mark_and_rewrite)
    options = (*BEST, "--room", room, "--max-chain", "20", "--yes", "--format", "json")
    (result,) = rows(compress(dsn, "apply", *options))
    assert result["groups_skipped"]
    assert result["longest_chain"] <= 20
    assert result["skipped"] is None
    assert all_states(dsn) == world.states


@pytest.mark.parametrize("schema", ["its own schema", "the schema of a later release"])
def test_a_purge_without_pending_deletion_is_repeated(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    """Synapse before 1.124 begins to delete a group, then the compressor makes it a predecessor."""
    dsn, world = rooms
    purged_ids: list[int] = []
    deltas = "select state_group from state_group_edges where prev_state_group = any(%s)"
    with psycopg.connect(dsn, autocommit=True) as owner:
        if schema == "its own schema":
            owner.execute("drop table state_groups_pending_deletion")
    with psycopg.connect(dsn) as synapse:
        synapse.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

        def begin_purge(connection: Any, changes: Any, start: int, end: int, *arguments: Any) -> Any:
            predecessors = [prev for prev in changes.new_prev[start:end].tolist() if prev != NONE]
            if predecessors and not purged_ids:
                purged_ids.append(predecessors[0])
                synapse.execute(deltas, [purged_ids])
            return rewrite_groups(connection, changes, start, end, *arguments)

        monkeypatch.setattr(postgres_writer, "rewrite_groups", begin_purge)
        options = (*BEST, "--room", "!whole", "--yes", "--format", "json")
        (result,) = rows(compress(dsn, "apply", *options))
        assert result["groups_rewritten"] > 0 == result["groups_skipped"]
        # Synapse 1.124 and later locks a predecessor like this when it stores a delta. It needs no repetition.
        assert synapse.execute("select id from state_groups where id = %s for key share", purged_ids).fetchall()
        with pytest.raises(psycopg.errors.SerializationFailure):
            synapse.execute("delete from state_groups where id = any(%s)", [purged_ids])
    assert all_states(dsn) == world.states


def test_a_session_with_long_locks_is_not_waited_for(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, world = rooms
    monkeypatch.setattr(postgres_writer, "_TRIES", 1)
    options = (*BEST, "--room", "!whole", "--yes", "--format", "json")
    with psycopg.connect(dsn) as deleting_session:
        deleting_session.execute("select from state_groups where room_id = '!whole' for update")
        (locked_result,) = rows(compress(dsn, "apply", *options))
        assert locked_result["groups_rewritten"] == 0 < locked_result["groups_skipped"]
        assert locked_result["skipped"] == postgres_writer.LOCKED_MESSAGE
    (free_result,) = rows(compress(dsn, "apply", *options))
    assert (free_result["groups_rewritten"], free_result["groups_skipped"], free_result["skipped"]) == (
        locked_result["groups_skipped"],
        0,
        None,
    )
    assert all_states(dsn) == world.states


def test_compression_waits_while_the_database_is_busy(rooms: tuple[str, World]) -> None:
    dsn, _ = rooms
    reports: list[str] = []

    def report(line: str) -> None:
        reports.append(line)
        busy_session.rollback()

    with psycopg.connect(dsn, autocommit=True) as connection, psycopg.connect(dsn) as busy_session:
        load = Backpressure(connection, sessions=0, lag_bytes=0, report=report)
        load.wait()
        assert reports == []
        load = replace(load)
        busy_session.execute("select 1")
        load.wait()
    assert reports[0] == "waiting: 1 sessions are in a transaction"
    assert [line.partition(" ")[0] for line in reports[1:]] == ["waited"]
    assert load.seconds_paused > 0


def test_the_work_of_another_compressor_is_reported(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, world = rooms
    rows(compress(dsn, "apply", "--room", "!7:it's.example", "--yes", "--format", "json"))

    def add_progress_and_rewrite(*arguments: Any) -> Any:
        with psycopg.connect(dsn) as other_compressor:
            other_compressor.execute(
                "insert into state_compressor_progress values (%s, 1) on conflict do nothing", ["!0:it's.example"]
            )
        return rewrite_groups(*arguments)

    monkeypatch.setattr(postgres_writer, "rewrite_groups", add_progress_and_rewrite)
    result = compress(dsn, "apply", *BEST, "--room", "!0:it's.example", "--yes")
    assert result.exit_code == 1
    assert "!0:it's.example" in result.stderr
    assert all_states(dsn) == world.states


def test_only_one_compression_runs_on_a_database(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LOCK_WAIT_SECONDS", 0.1)
    with connections.open_write_connection(rooms[0]):
        result = compress(rooms[0], "apply", "--yes")
    assert result.exit_code == 1
    assert "Another compression" in result.stderr


def test_a_write_session_has_no_idle_timeout(rooms: tuple[str, World]) -> None:
    dsn, _ = rooms
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(f"alter database {owner.info.dbname} set idle_session_timeout = '1s'".encode())
    with connections.open_write_connection(dsn) as writer:
        assert writer.execute("show idle_session_timeout").fetchone() == ("0",)
