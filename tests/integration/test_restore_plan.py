"""The SQL of ``lakehouse state restore-plan`` restores lost rows of room state, row for row."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from synapse_lakehouse.cli import app
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import BIN, EmbeddedServer
from tests.support.hostile_text import TEXTS, list_unprintable
from tests.support.split_source import split_source
from tests.support.state_releases import STATE_TABLES, TABLES, StateReleases
from tests.support.state_rooms import State, resolved

HOSTILE = (
    *TEXTS,
    "it's \\'; drop table state_groups; --",
    "\\",
    "'",
    "E'\\n'",
    "a\nb\\x1b",
    "$$ $1 %s :name",
    "\\.\n",
    "",
)


@pytest.fixture
def releases(source_copy: str, new_lake: Callable[..., Settings]) -> StateReleases:
    return StateReleases(new_lake(synapse_dsn=source_copy))


def plan(releases: StateReleases, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["state", "restore-plan", *arguments], env=releases.settings.to_environment())
    assert result.exit_code == 0, result.output
    assert not list_unprintable(result.stdout)
    return result.stdout


def run(dsn: str, script: str, folder: Path) -> None:
    file = folder / "plan.sql"
    file.write_text(script)
    subprocess.run([BIN / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-f", file, dsn], check=True, capture_output=True)


def state(dsn: str, tables: tuple[str, ...] = TABLES) -> dict[str, list[tuple[object, ...]]]:
    with psycopg.connect(dsn) as connection:
        return {name: sorted(connection.execute(f"select * from {name}".encode()), key=repr) for name in tables}


def change(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as owner:
        for statement in statements:
            owner.execute(statement.encode())


def plant(dsn: str) -> tuple[str, int, list[int]]:
    """Insert hostile rows; return the room, the state group with these rows, and further groups with a predecessor."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        row = owner.execute(
            "select room_id from state_groups join state_group_edges on id = state_group"
            " join state_groups_state using (room_id) group by 1 having count(distinct id) > 20 order by 1 limit 1"
        ).fetchone()
        assert row
        groups = [
            group
            for (group,) in owner.execute(
                "select distinct state_group from state_groups_state join state_group_edges using (state_group)"
                " join event_to_state_groups using (state_group) where room_id = %s order by state_group limit 8",
                row,
            )
        ]
        for number, text in enumerate(HOSTILE):
            owner.execute(
                "insert into state_groups_state values (%s, %s, %s, %s, %s)",
                (groups[0], row[0], text, text, f"${number}'"),
            )
    return row[0], groups[0], groups[1:]


def test_rows_lost_over_several_releases_are_restored(releases: StateReleases, tmp_path: Path) -> None:
    dsn = releases.dsn
    room, hostile, (first, second, edge, group, *_) = plant(dsn)
    releases.publish()
    before = state(dsn)
    change(dsn, f"delete from state_groups_state where state_group in ({hostile}, {first})")
    releases.publish()
    change(
        dsn,
        f"delete from state_groups_state where state_group in ({second}, {group})",
        f"delete from state_group_edges where state_group in ({edge}, {group})",
        f"delete from state_groups where id = {group}",
    )
    assert state(dsn) != before
    releases.publish()
    printed = plan(releases, "--room", room)
    assert "Release 1 is" in printed
    assert "Release 2 is" in printed
    first_insert = printed.index("INSERT INTO")
    assert printed.index("REINDEX TABLE state_groups_state;") < first_insert
    for scan in ("indexscan", "bitmapscan", "indexonlyscan"):
        assert printed.index("BEGIN;") < printed.index(f"SET LOCAL enable_{scan} = off;") < first_insert
    for _ in range(2):
        run(dsn, printed, tmp_path)
        assert state(dsn) == before
    printed = plan(releases, str(hostile), str(group))
    assert f"({second}," not in printed
    assert f"({hostile}," in printed


def rewrite(dsn: str, group: int, room: str, pieces: dict[str, str], prev: int | None = None) -> None:
    """Store a state group in another way: with the rows of ``pieces``, and as a delta of ``prev``."""
    change(
        dsn,
        f"delete from state_groups_state where state_group = {group}",
        f"delete from state_group_edges where state_group = {group}",
        *([f"insert into state_group_edges values ({group}, {prev})"] if prev else []),
        *(
            f"insert into state_groups_state values ({group}, '{room}', '{type_}', '', '{event}')"
            for type_, event in pieces.items()
        ),
    )


@pytest.fixture
def chain(releases: StateReleases) -> tuple[str, list[int]]:
    """Return a room and its state groups, in one chain; each sets the topic, and the first one the whole state."""
    room, groups = "!chain:example.org", [8_000_000 + number for number in range(5)]
    for number, group in enumerate(groups):
        change(
            releases.dsn,
            f"insert into state_groups (id, room_id, event_id) values ({group}, '{room}', '${group}')",
            f"insert into event_to_state_groups values ('${group}', {group})",
        )
        pieces = {} if number else {"create": "$c", "name": "$n", "rules": "$r"}
        rewrite(releases.dsn, group, room, pieces | {"topic": f"$t{number}"}, groups[number - 1] if number else None)
    releases.publish()
    return room, groups


def states(dsn: str, room: str) -> dict[int, State]:
    """Return the state of each group of the room."""
    with psycopg.connect(dsn) as connection:
        edges: dict[int, int] = dict(
            connection.execute("select state_group, prev_state_group from state_group_edges").fetchall()
        )
        own: dict[int, State] = {}
        for group, type_, key, event in connection.execute(
            "select state_group, type, state_key, event_id from state_groups_state where room_id = %s", [room]
        ):
            own.setdefault(group, {})[type_, key] = event
        groups = connection.execute("select id from state_groups where room_id = %s", [room]).fetchall()
    return {group: resolved(edges, own, group) for (group,) in groups}


def test_a_separate_state_database_is_restored(
    server: EmbeddedServer, new_lake: Callable[..., Settings], tmp_path: Path
) -> None:
    with split_source(server) as (main, dsn):
        releases = StateReleases(new_lake(synapse_dsn=main, synapse_state_dsn=dsn))
        releases.publish()
        before = state(dsn, STATE_TABLES)
        change(dsn, "delete from state_groups_state where state_group % 5 = 0")
        assert state(dsn, STATE_TABLES) != before
        releases.publish()
        for room in {str(room) for _, room, *_ in before["state_groups"]}:
            run(dsn, plan(releases, "--room", room), tmp_path)
        assert state(dsn, STATE_TABLES) == before


def test_a_rewritten_or_deleted_group_lost_nothing(releases: StateReleases, chain: tuple[str, list[int]]) -> None:
    dsn, (room, (first, second, third, fourth, unused)) = releases.dsn, chain
    before = states(dsn, room)
    # A compressor stores one group in full, and another group as a delta of another predecessor.
    rewrite(dsn, third, room, {"create": "$c", "name": "$n", "rules": "$r", "topic": "$t2"})
    rewrite(dsn, fourth, room, {"topic": "$t3"}, second)
    # Synapse deletes a group that no event uses.
    change(dsn, f"delete from event_to_state_groups where state_group = {unused}")
    rewrite(dsn, unused, room, {})
    change(dsn, f"delete from state_groups where id = {unused}")
    releases.publish()
    assert states(dsn, room) == {group: before[group] for group in (first, second, third, fourth)}
    assert "INSERT" not in plan(releases, "--room", room, "--overwrite")


def test_groups_rewritten_from_wrong_reads_are_restored(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path
) -> None:
    """Synapse deletes the first two groups, and stores the third in full, with rows that a damaged index returned."""
    dsn, (room, (first, second, third, fourth, last)) = releases.dsn, chain
    before = states(dsn, room)
    for group in (first, second):
        rewrite(dsn, group, room, {})
        change(dsn, f"delete from event_to_state_groups where state_group = {group}")
    rewrite(dsn, third, room, {"create": "$other", "topic": "$t2", "alias": "$a"})
    change(dsn, f"delete from state_groups where id in ({first}, {second})")
    # A compressor stores the fifth group as a delta of the third.
    rewrite(dsn, last, room, {"topic": "$t4"}, third)
    releases.publish()
    expected = {group: state for group, state in before.items() if group in (third, fourth, last)}

    printed = plan(releases, "--room", room)
    run(dsn, printed, tmp_path)
    restored = states(dsn, room)
    for group, state in expected.items():
        assert restored[group] == state | {("create", ""): "$other", ("alias", ""): "$a"}
    assert printed.count(f"({third},") == 2
    assert f"({last}," not in printed

    for _ in range(2):
        run(dsn, plan(releases, "--room", room, "--overwrite"), tmp_path)
        assert states(dsn, room) == expected


def test_lost_rows_are_restored_from_the_last_correct_release(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path
) -> None:
    """The newest release with the lost rows has wrong values; an earlier release has the right values."""
    dsn, (room, (first, second, third, *_)) = releases.dsn, chain
    before = states(dsn, room)
    for group in (first, second):
        rewrite(dsn, group, room, {})
        change(dsn, f"delete from event_to_state_groups where state_group = {group}")
    change(dsn, f"delete from state_groups where id in ({first}, {second})")
    rewrite(dsn, third, room, {"create": "$other", "topic": "$t2", "name": "$n", "rules": "$r"})
    releases.publish()
    rewrite(dsn, third, room, {"rules": "$r"})
    releases.publish()
    run(dsn, plan(releases, "--room", room, "--overwrite"), tmp_path)
    assert states(dsn, room) == {group: state for group, state in before.items() if group >= third}


def test_a_group_that_was_stored_without_rows_is_restored(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path
) -> None:
    dsn, (room, groups) = releases.dsn, chain
    before = states(dsn, room)
    for group in groups[:2]:
        rewrite(dsn, group, room, {})
        change(dsn, f"delete from event_to_state_groups where state_group = {group}")
    change(dsn, f"delete from state_groups where id in ({groups[0]}, {groups[1]})")
    rewrite(dsn, groups[2], room, {})
    releases.publish()
    run(dsn, plan(releases, str(groups[2])), tmp_path)
    assert states(dsn, room) == {group: before[group] for group in groups[2:]}


@pytest.mark.parametrize("damage", ["lost", "changed", "additional"])
def test_a_repaired_group_has_no_plan(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path, damage: str
) -> None:
    """A release with the damage is between two right ones."""
    dsn, (room, (group, *_)) = releases.dsn, chain
    before = state(dsn)
    own = f"state_group = {group} and type"
    change(
        dsn,
        {
            "lost": f"delete from state_groups_state where {own} = 'name'",
            "changed": f"update state_groups_state set event_id = '$other' where {own} = 'create'",
            "additional": f"insert into state_groups_state values ({group}, '{room}', 'alias', '', '$a')",
        }[damage],
    )
    releases.publish()
    run(dsn, plan(releases, "--room", room, "--overwrite"), tmp_path)
    assert state(dsn) == before
    releases.publish()
    assert "BEGIN" not in plan(releases, "--room", room, "--overwrite")


@pytest.mark.parametrize("named", [["--room", "!chain:example.org"], ["8000001"], ["8000002"]])
def test_the_number_of_a_lost_group_was_used_again(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path, named: list[str]
) -> None:
    """After a restore of the database, a group has the number of another room's group."""
    dsn, (_, (_, second, *_)) = releases.dsn, chain
    rewrite(dsn, second, "!other:example.org", {})
    change(
        dsn,
        f"update state_groups set room_id = '!other:example.org', event_id = '$other' where id = {second}",
        f"delete from event_to_state_groups where state_group = {second}",
        f"delete from state_group_edges where state_group = {second + 1}",
    )
    releases.publish()
    before = state(dsn)
    printed = plan(releases, *named, "--overwrite")
    run(dsn, printed if "BEGIN" in printed else "", tmp_path)
    after = state(dsn)
    assert [row for row in after["state_group_edges"] if second in row] == []
    assert [row for row in after["state_groups_state"] if row[0] == second] == []
    assert after["state_groups"] == before["state_groups"]


@pytest.mark.parametrize("named", [["--room", "!chain:example.org"], ["8000002"]])
def test_groups_and_their_predecessor_were_lost(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path, named: list[str]
) -> None:
    """Only another group referred to the second group, which is lost together with the third one."""
    dsn, (_, groups) = releases.dsn, chain
    _, second, third, fourth, last = groups
    unused = ", ".join(map(str, (second, fourth, last)))
    change(dsn, f"delete from event_to_state_groups where state_group in ({unused})")
    for group in (fourth, last):
        delete(dsn, group)
    releases.publish()
    before = state(dsn)
    for group in (second, third):
        delete(dsn, group)
    releases.publish()
    run(dsn, plan(releases, *named), tmp_path)
    assert state(dsn) == before


def test_a_row_of_a_predecessor_was_lost(releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path) -> None:
    """Only an edge refers to the predecessor. The finding names the group with the edge."""
    dsn, (_, (_, second, third, *_)) = releases.dsn, chain
    change(dsn, f"delete from event_to_state_groups where state_group = {second}")
    releases.publish()
    before = state(dsn)
    change(dsn, f"delete from state_groups where id = {second}")
    releases.publish()
    run(dsn, plan(releases, str(third)), tmp_path)
    assert state(dsn) == before


def test_an_edge_of_a_deleted_group_needs_nothing(releases: StateReleases, chain: tuple[str, list[int]]) -> None:
    """Synapse before 1.126 kept the edges of state groups that it deleted."""
    dsn, (room, (*_, fourth, last)) = releases.dsn, chain
    for group in (fourth, last):
        change(
            dsn,
            f"delete from event_to_state_groups where state_group = {group}",
            f"delete from state_groups where id = {group}",
            f"delete from state_groups_state where state_group = {group}",
        )
    releases.publish()
    assert "BEGIN" not in plan(releases, "--room", room, "--overwrite")


def test_a_group_with_another_predecessor_gets_no_second_one(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path
) -> None:
    """A plan is executed after Synapse stored the group otherwise."""
    dsn, (_, (first, _, third, *_)) = releases.dsn, chain
    change(dsn, f"delete from state_group_edges where state_group = {third}")
    releases.publish()
    printed = plan(releases, str(third))
    change(dsn, f"insert into state_group_edges values ({third}, {first})")
    run(dsn, printed, tmp_path)
    edges = [row for row in state(dsn)["state_group_edges"] if row[0] == third]
    assert edges == [(third, first)]


def delete(dsn: str, group: int) -> None:
    """Delete a state group as Synapse does."""
    rewrite(dsn, group, "", {})
    change(dsn, f"delete from state_groups where id = {group}")


def test_a_present_row_is_changed_on_request(releases: StateReleases, tmp_path: Path) -> None:
    dsn = releases.dsn
    room, group, _ = plant(dsn)
    releases.publish()
    before = state(dsn)
    change(dsn, f"update state_groups_state set event_id = '$other' where state_group = {group} and state_key = ''''")
    releases.publish()
    printed = plan(releases, "--room", room)
    assert "INSERT" not in printed
    assert "$other" in printed
    run(dsn, plan(releases, "--room", room, "--overwrite"), tmp_path)
    assert state(dsn) == before


def test_only_releases_with_their_snapshots_are_searched(releases: StateReleases) -> None:
    dsn = releases.dsn
    room, group, _ = plant(dsn)
    releases.publish()
    change(dsn, f"delete from state_groups_state where state_group = {group}")
    releases.publish()
    change(dsn, "delete from state_groups_state where state_key = 'nobody'")
    releases.publish()
    table = releases.catalog.load_table("bronze.state_groups_state")
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    printed = plan(releases, "--room", room)
    assert "INSERT" not in printed
    assert "from 2 on" in printed
    result = CliRunner().invoke(app, ["doctor", "--format", "json"], env=releases.settings.to_environment())
    (finding,) = [row for row in json.loads(result.stdout) if row["subject"] == "releases"]
    assert "release 2 (" in finding["message"]


def test_a_plan_needs_groups_or_a_room(releases: StateReleases) -> None:
    assert CliRunner().invoke(app, ["state", "restore-plan"], env=releases.settings.to_environment()).exit_code == 2
