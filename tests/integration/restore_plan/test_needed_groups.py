"""State groups that a plan restores because others need them, and groups that it leaves out."""

from pathlib import Path

import pytest

from tests.support.restore_plan import delete_group, execute, print_plan, read_tables, run_sql, store_group
from tests.support.state_releases import StateReleases


@pytest.mark.parametrize("named", [["--room", "!chain:example.org"], ["8000001"], ["8000002"]])
def test_the_number_of_a_lost_group_was_used_again(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path, named: list[str]
) -> None:
    """After a restore of the database, a group has the number of another room's group."""
    dsn, (_, (_, second, *_)) = releases.dsn, chain
    store_group(dsn, second, "!other:example.org", {})
    execute(
        dsn,
        f"update state_groups set room_id = '!other:example.org', event_id = '$other' where id = {second}",
        f"delete from event_to_state_groups where state_group = {second}",
        f"delete from state_group_edges where state_group = {second + 1}",
    )
    releases.publish()
    before = read_tables(dsn)
    printed = print_plan(releases, *named, "--overwrite")
    run_sql(dsn, printed if "BEGIN" in printed else "", tmp_path)
    after = read_tables(dsn)
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
    execute(dsn, f"delete from event_to_state_groups where state_group in ({unused})")
    for group in (fourth, last):
        delete_group(dsn, group)
    releases.publish()
    before = read_tables(dsn)
    for group in (second, third):
        delete_group(dsn, group)
    releases.publish()
    run_sql(dsn, print_plan(releases, *named), tmp_path)
    assert read_tables(dsn) == before


def test_a_row_of_a_predecessor_was_lost(releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path) -> None:
    """Only an edge refers to the predecessor. The finding names the group with the edge."""
    dsn, (_, (_, second, third, *_)) = releases.dsn, chain
    execute(dsn, f"delete from event_to_state_groups where state_group = {second}")
    releases.publish()
    before = read_tables(dsn)
    execute(dsn, f"delete from state_groups where id = {second}")
    releases.publish()
    run_sql(dsn, print_plan(releases, str(third)), tmp_path)
    assert read_tables(dsn) == before


def test_an_edge_of_a_deleted_group_needs_nothing(releases: StateReleases, chain: tuple[str, list[int]]) -> None:
    """Synapse before 1.126 kept the edges of state groups that it deleted."""
    dsn, (room, (*_, fourth, last)) = releases.dsn, chain
    for group in (fourth, last):
        execute(
            dsn,
            f"delete from event_to_state_groups where state_group = {group}",
            f"delete from state_groups where id = {group}",
            f"delete from state_groups_state where state_group = {group}",
        )
    releases.publish()
    assert "BEGIN" not in print_plan(releases, "--room", room, "--overwrite")
