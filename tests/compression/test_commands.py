"""The output of ``lakehouse compress``, its changes in a Synapse database, and the space that it frees."""

from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from synapse_lakehouse.compressor import read_cost
from synapse_lakehouse.compressor.algorithm.encode_tables import StateTables
from synapse_lakehouse.compressor.algorithm.row_changes import RowChanges
from synapse_lakehouse.compressor.algorithm.state_groups import NONE
from synapse_lakehouse.compressor.postgres.transaction import GroupRooms, encode_rows, rewrite_groups
from tests.compression.conftest import BEST, EVERY_ROOM, Compress, rows, undo_files
from tests.support.state_database import all_states, read_state
from tests.support.state_rooms import World


@pytest.mark.parametrize("strategy", ["levels", "best"])
def test_a_plan_is_applied_verified_and_restored(
    compress: Compress, rooms: tuple[str, World], strategy: str, tmp_path: Path
) -> None:
    dsn, world = rooms
    options = ("--strategy", strategy, *EVERY_ROOM)
    before = read_state(dsn)
    planned_rows = rows(compress(dsn, "plan", *options, "--format", "json"))
    dry_run = rows(compress(dsn, "apply", *options, "--format", "json"))
    assert dry_run == planned_rows
    assert read_state(dsn) == before
    assert sum(row["rows_before"] for row in planned_rows) == sum(map(len, before[1].values()))

    applied_rows = rows(compress(dsn, "apply", *options, "--format", "json", "--yes"))
    edges, state_rows = read_state(dsn)
    assert all_states(dsn) == world.states
    assert all(prev < group for group, prev in edges.items())
    assert (
        sum(row["rows_after"] for row in applied_rows)
        == sum(map(len, state_rows.values()))
        < sum(map(len, before[1].values()))
    )
    if strategy == "best":
        assert {row["room_id"]: row["rows_after"] for row in applied_rows} == {
            row["room_id"]: row["rows_after"] for row in planned_rows
        }
        assert max(row["longest_chain"] for row in applied_rows) <= 100
    second_rows = rows(compress(dsn, "apply", *options, "--format", "json", "--yes"))
    assert [row["groups_rewritten"] for row in second_rows] == [0] * len(second_rows)

    files = undo_files(tmp_path)
    undo_arguments = [argument for file in files for argument in ("--undo", file)]
    verified_rows = rows(
        compress(dsn, "verify", "--strategy", strategy, *EVERY_ROOM, *undo_arguments, "--format", "json")
    )
    assert {row["faults"] for row in verified_rows} == {""}
    assert sum(row["compared"] for row in verified_rows) >= sum(row["groups_rewritten"] for row in applied_rows)

    assert compress(dsn, "undo", *files).exit_code == 0
    assert read_state(dsn) == (edges, state_rows)
    assert compress(dsn, "undo", *files, "--yes").exit_code == 0
    assert read_state(dsn) == before


def test_the_sample_is_compressed_room_by_room(compress: Compress, source_copy: str) -> None:
    before = all_states(source_copy)
    planned_rows = rows(compress(source_copy, "plan", *BEST, "--format", "json"))
    assert len(planned_rows) == 5
    selected = planned_rows[1]["room_id"]
    (result,) = rows(compress(source_copy, "apply", *BEST, "--room", selected, "--yes", "--format", "json"))
    assert result["groups_rewritten"] == planned_rows[1]["groups_to_rewrite"] > 0
    assert result["rows_after"] == planned_rows[1]["rows_after"] < planned_rows[1]["rows_before"]
    assert all_states(source_copy) == before
    assert selected not in {row["room_id"] for row in rows(compress(source_copy, "plan", *BEST, "--format", "json"))}


def test_vacuum_frees_space_in_the_table_or_on_disk(compress: Compress, rooms: tuple[str, World]) -> None:
    dsn, world = rooms
    with psycopg.connect(dsn, autocommit=True) as connection:

        def table_bytes() -> int:
            ((size,),) = connection.execute("select pg_relation_size('state_groups_state')").fetchall()
            return int(size)

        initial_bytes = table_bytes()
        applied_rows = rows(compress(dsn, "apply", *BEST, *EVERY_ROOM, "--yes", "--format", "json"))
        freed_rows = sum(row["rows_before"] - row["rows_after"] for row in applied_rows)
        assert freed_rows > 0
        assert table_bytes() >= initial_bytes, "new rows were written beside the old ones"
        connection.execute("vacuum state_groups_state")
        vacuumed_bytes = table_bytes()
        connection.execute(
            "insert into state_groups_state select state_group, room_id, type, 'again' || n, event_id"
            " from state_groups_state, generate_series(1, 20) n limit %s", [freed_rows],
        )  # fmt: skip
        assert table_bytes() == vacuumed_bytes, "the new rows fit into the freed space"
        connection.execute("delete from state_groups_state where state_key like 'again%'")
        connection.execute("vacuum full state_groups_state")
        assert table_bytes() < min(vacuumed_bytes, initial_bytes)
    assert all_states(dsn) == world.states


def test_read_cost_is_measured_with_synapse_s_query(compress: Compress, rooms: tuple[str, World]) -> None:
    dsn, world = rooms
    (result,) = rows(compress(dsn, "apply", *BEST, "--room", "!whole", "--yes", "--format", "json"))
    assert result["rows_after"] < result["rows_before"]
    assert result["chain_before"] == 1, "no group was a delta"
    assert 1 < result["chain_after"] <= 100
    assert result["read_ms_before"] > 0
    assert result["read_ms_after"] > 0
    assert result["disk_bytes_after"] >= result["disk_bytes_before"] > 0
    (second_result,) = rows(compress(dsn, "apply", *BEST, "--room", "!whole", "--yes", "--format", "json"))
    assert second_result["chain_before"] is None, "without rows to write, nothing is measured"
    group = max(group for group, room in world.groups.items() if room == "!whole")
    with psycopg.connect(dsn) as connection:
        cost = read_cost.measure_read_cost(connection, [group, group - 1])
        assert cost
        assert cost.groups == (group, group - 1)
        assert read_cost.measure_read_cost(connection, [group, group - 1], seconds=0).groups == (group,)  # type: ignore[union-attr]
        chain, state = connection.execute(read_cost._READ.encode(), {"group": group}).fetchone()  # type: ignore[misc]
    assert state == len(world.states[group])
    assert chain <= 100


def test_any_text_is_written_unchanged(rooms: tuple[str, World]) -> None:
    texts = [
        "",
        " ",
        "NULL",
        "\\N",
        "\\.",
        "a,b",
        '"',
        '""',
        "it's",
        "\r",
        "\r\n",
        "two\nlines",
        "\t",
        "\\",
        "ünï✓😀",
        "\x7f",
    ]
    table = pa.table(
        {
            "state_group": pa.array([7] * len(texts), pa.int64()),
            "type": pa.array(texts).dictionary_encode(),
            "state_key": texts,
            "event_id": pa.array(texts[::-1]).dictionary_encode(),
        }
    )
    changes = RowChanges(
        np.array([7]), np.empty((0, 2), np.int64), np.array([NONE]), np.array([len(texts)]), lambda indices: table
    )
    room = 'a "room", too'
    group_rooms = GroupRooms(StateTables(pa.table({"id": [7], "room_id": [room]}), pa.table({}), pa.table({})), room)
    with psycopg.connect(rooms[0]) as connection:
        connection.execute("insert into state_groups values (7, %s, '$') on conflict do nothing", [room])
        connection.execute("delete from state_group_edges where state_group = 7")
        new_rows = encode_rows(changes, np.arange(1), group_rooms)
        assert not len(rewrite_groups(connection, changes, 0, 1, group_rooms, new_rows))
        stored_rows = connection.execute(
            "select room_id, type, state_key, event_id from state_groups_state where state_group = 7 order by ctid"
        ).fetchall()
    assert stored_rows == [(room, *texts) for texts in zip(texts, texts, texts[::-1], strict=True)]


def test_groups_are_sampled_from_the_oldest_to_the_newest() -> None:
    assert read_cost.sample_groups(np.array([7])) == [7]
    sample = read_cost.sample_groups(np.arange(1000)[::-1])
    assert (len(sample), sample[0], sample[-1]) == (20, 0, 999)
    assert read_cost.sample_groups(np.arange(0)) == []


def test_undo_skips_a_group_that_is_pending_deletion(
    compress: Compress, rooms: tuple[str, World], tmp_path: Path
) -> None:
    dsn, world = rooms
    assert compress(dsn, "apply", *BEST, "--room", "!whole", "--yes").exit_code == 0
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into state_groups_pending_deletion (state_group, insertion_ts) select max(id), 0 from state_groups"
            " where room_id = '!whole'"
        )
    result = compress(dsn, "undo", *undo_files(tmp_path), "--yes")
    assert result.exit_code == 0, result.output
    assert all_states(dsn) == world.states
