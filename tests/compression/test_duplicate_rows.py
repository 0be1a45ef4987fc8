"""Compression removes duplicate rows of state, which a double restore of a backup can cause."""

import random
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from tests.compression.conftest import EVERY_ROOM, Compress, rows, undo_files
from tests.support.state_database import all_states
from tests.support.state_rooms import World

ROOM = "!wsCBFaCAgepTuUecVm:synapse.example"
ROWS = "select state_group, type, state_key, event_id, room_id from state_groups_state"
STRATEGIES = pytest.mark.parametrize("strategy", ["levels", "best"])


def stored_rows(dsn: str, room: str | None = None) -> Counter[tuple[object, ...]]:
    """Return the stored rows of state, of one room or of all rooms."""
    with psycopg.connect(dsn) as connection:
        condition = " where state_group in (select id from state_groups where room_id = %(room)s)" if room else ""
        return Counter(connection.execute((ROWS + condition).encode(), {"room": room}))


@STRATEGIES
def test_a_room_with_two_copies_of_every_row(
    compress: Compress, source_copy: str, strategy: str, tmp_path: Path
) -> None:
    room = ("--room", ROOM, "--strategy", strategy)
    with psycopg.connect(source_copy) as connection:
        connection.execute(
            "insert into state_groups_state select s.* from state_groups_state s"
            " join state_groups g on g.id = s.state_group where g.room_id = %s",
            [ROOM],
        )
    before, states = stored_rows(source_copy), all_states(source_copy)
    (planned_row,) = rows(compress(source_copy, "plan", *room, "--format", "json"))
    (applied_row,) = rows(compress(source_copy, "apply", *room, "--format", "json", "--yes"))
    after = stored_rows(source_copy, ROOM)
    assert sum(stored_rows(source_copy).values()) - after.total() == before.total() - 300
    assert set(after.values()) == {1}
    assert (planned_row["rows_before"], applied_row["rows_before"]) == (300, 300)
    assert planned_row["rows_after"] == applied_row["rows_after"] == after.total() < 300
    assert applied_row["bytes_after"] < applied_row["bytes_before"]
    assert all_states(source_copy) == states
    (verified_row,) = rows(compress(source_copy, "verify", *room, "--format", "json"))
    assert (verified_row["rows"], verified_row["faults"]) == (after.total(), "")

    (second_result,) = rows(compress(source_copy, "apply", *room, "--format", "json", "--yes"))
    assert (second_result["groups_rewritten"], second_result["rows_before"]) == (0, second_result["rows_after"])
    assert compress(source_copy, "undo", *undo_files(tmp_path), "--yes").exit_code == 0
    assert stored_rows(source_copy) == before


@STRATEGIES
def test_rooms_with_any_number_of_copies_of_rows(
    compress: Compress, rooms: tuple[str, World], strategy: str, tmp_path: Path
) -> None:
    dsn, world = rooms
    random_rows = random.Random(7)
    with psycopg.connect(dsn) as connection:
        copies = [row for row in connection.execute(ROWS) for _ in range(random_rows.choice([0, 0, 0, 1, 3]))]
        connection.cursor().executemany(
            "insert into state_groups_state (state_group, type, state_key, event_id, room_id) values (%s,%s,%s,%s,%s)",
            copies,
        )
    before, options = stored_rows(dsn), ("--strategy", strategy, *EVERY_ROOM)
    planned_rows = rows(compress(dsn, "plan", *options, "--format", "json"))
    applied_rows = rows(compress(dsn, "apply", *options, "--format", "json", "--yes"))
    after = stored_rows(dsn)
    assert set(after.values()) == {1}
    assert (
        sum(row["rows_before"] for row in planned_rows)
        == sum(row["rows_before"] for row in applied_rows)
        == before.total()
    )
    assert sum(row["rows_after"] for row in applied_rows) == after.total() < before.total()
    assert all(row["rows_after"] <= row["rows_before"] for row in applied_rows)
    assert all_states(dsn) == world.states
    assert compress(dsn, "undo", *undo_files(tmp_path), "--yes").exit_code == 0
    assert stored_rows(dsn) == before


@STRATEGIES
def test_a_room_with_two_events_for_a_key_is_skipped(compress: Compress, source_copy: str, strategy: str) -> None:
    with psycopg.connect(source_copy) as connection:
        connection.execute(
            "insert into state_groups_state (state_group, room_id, type, state_key, event_id)"
            " select s.state_group, s.room_id, s.type, s.state_key, s.event_id || 'x' from state_groups_state s"
            " join state_groups g on g.id = s.state_group where g.room_id = %s limit 1",
            [ROOM],
        )
    before = stored_rows(source_copy)
    room = ("--room", ROOM, "--strategy", strategy, "--format", "json")
    for arguments in (("plan", *room), ("apply", *room, "--yes")):
        (row,) = rows(compress(source_copy, *arguments))
        assert row["rows_after"] is None
        assert "two events" in row["skipped"]
    assert stored_rows(source_copy) == before
