"""The SQL of ``lakehouse state restore-plan`` restores lost rows of room state, row for row."""

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from synapse_lakehouse.cli import app
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.support.hostile_text import TEXTS
from tests.support.restore_plan import execute, print_plan, read_tables, run_sql
from tests.support.split_source import split_source
from tests.support.state_releases import STATE_TABLES, StateReleases

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
    before = read_tables(dsn)
    execute(dsn, f"delete from state_groups_state where state_group in ({hostile}, {first})")
    releases.publish()
    execute(
        dsn,
        f"delete from state_groups_state where state_group in ({second}, {group})",
        f"delete from state_group_edges where state_group in ({edge}, {group})",
        f"delete from state_groups where id = {group}",
    )
    assert read_tables(dsn) != before
    releases.publish()
    printed = print_plan(releases, "--room", room)
    assert "Release 1 is" in printed
    assert "Release 2 is" in printed
    first_insert = printed.index("INSERT INTO")
    assert printed.index("REINDEX TABLE state_groups_state;") < first_insert
    for scan in ("indexscan", "bitmapscan", "indexonlyscan"):
        assert printed.index("BEGIN;") < printed.index(f"SET LOCAL enable_{scan} = off;") < first_insert
    for _ in range(2):
        run_sql(dsn, printed, tmp_path)
        assert read_tables(dsn) == before
    printed = print_plan(releases, str(hostile), str(group))
    assert f"({second}," not in printed
    assert f"({hostile}," in printed


def test_a_separate_state_database_is_restored(
    server: EmbeddedServer, new_lake: Callable[..., Settings], tmp_path: Path
) -> None:
    with split_source(server) as (main, dsn):
        releases = StateReleases(new_lake(synapse_dsn=main, synapse_state_dsn=dsn))
        releases.publish()
        before = read_tables(dsn, STATE_TABLES)
        execute(dsn, "delete from state_groups_state where state_group % 5 = 0")
        assert read_tables(dsn, STATE_TABLES) != before
        releases.publish()
        rooms = {str(room) for _, room, *_ in before["state_groups"]}
        run_sql(dsn, print_plan(releases, *(f"--room={room}" for room in rooms)), tmp_path)
        assert read_tables(dsn, STATE_TABLES) == before


@pytest.mark.parametrize("damage", ["lost", "changed", "additional"])
def test_a_repaired_group_has_no_plan(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path, damage: str
) -> None:
    """A release with the damage is between two right ones."""
    dsn, (room, (group, *_)) = releases.dsn, chain
    before = read_tables(dsn)
    own = f"state_group = {group} and type"
    execute(
        dsn,
        {
            "lost": f"delete from state_groups_state where {own} = 'name'",
            "changed": f"update state_groups_state set event_id = '$other' where {own} = 'create'",
            "additional": f"insert into state_groups_state values ({group}, '{room}', 'alias', '', '$a')",
        }[damage],
    )
    releases.publish()
    run_sql(dsn, print_plan(releases, "--room", room, "--overwrite"), tmp_path)
    assert read_tables(dsn) == before
    releases.publish()
    assert "BEGIN" not in print_plan(releases, "--room", room, "--overwrite")


def test_a_present_row_is_changed_on_request(releases: StateReleases, tmp_path: Path) -> None:
    dsn = releases.dsn
    room, group, _ = plant(dsn)
    releases.publish()
    before = read_tables(dsn)
    execute(dsn, f"update state_groups_state set event_id = '$other' where state_group = {group} and state_key = ''''")
    releases.publish()
    printed = print_plan(releases, "--room", room)
    assert "INSERT" not in printed
    assert "$other" in printed
    run_sql(dsn, print_plan(releases, "--room", room, "--overwrite"), tmp_path)
    assert read_tables(dsn) == before


def test_only_releases_with_their_snapshots_are_searched(releases: StateReleases) -> None:
    dsn = releases.dsn
    room, group, _ = plant(dsn)
    releases.publish()
    execute(dsn, f"delete from state_groups_state where state_group = {group}")
    releases.publish()
    execute(dsn, "delete from state_groups_state where state_key = 'nobody'")
    releases.publish()
    table = releases.catalog.load_table("bronze.state_groups_state")
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    printed = print_plan(releases, "--room", room)
    assert "INSERT" not in printed
    assert "from 2 on" in printed
    result = CliRunner().invoke(app, ["doctor", "--format", "json"], env=releases.settings.to_environment())
    (finding,) = [row for row in json.loads(result.stdout) if row["subject"] == "releases"]
    assert "release 2 (" in finding["message"]


def test_a_plan_needs_groups_or_a_room(releases: StateReleases) -> None:
    assert CliRunner().invoke(app, ["state", "restore-plan"], env=releases.settings.to_environment()).exit_code == 2
