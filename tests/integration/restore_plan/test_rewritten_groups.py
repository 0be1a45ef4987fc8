"""State groups that Synapse or a compressor stored otherwise since the earlier release."""

from pathlib import Path

import psycopg
import pytest

from tests.support.restore_plan import delete_group, execute, print_plan, read_states, read_tables, run_sql, store_group
from tests.support.state_releases import StateReleases


def test_a_rewritten_or_deleted_group_lost_nothing(releases: StateReleases, chain: tuple[str, list[int]]) -> None:
    dsn, (room, (first, second, third, fourth, unused)) = releases.dsn, chain
    before = read_states(dsn, room)
    # A compressor stores one group in full, and another group as a delta of another predecessor.
    store_group(dsn, third, room, {"create": "$c", "name": "$n", "rules": "$r", "topic": "$t2"})
    store_group(dsn, fourth, room, {"topic": "$t3"}, second)
    # Synapse deletes a group that no event uses.
    execute(dsn, f"delete from event_to_state_groups where state_group = {unused}")
    store_group(dsn, unused, room, {})
    execute(dsn, f"delete from state_groups where id = {unused}")
    releases.publish()
    assert read_states(dsn, room) == {group: before[group] for group in (first, second, third, fourth)}
    assert "INSERT" not in print_plan(releases, "--room", room, "--overwrite")


def test_groups_rewritten_from_wrong_reads_are_restored(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path
) -> None:
    """Synapse deletes the first two groups, and stores the third in full, with rows that a damaged index returned."""
    dsn, (room, (first, second, third, fourth, last)) = releases.dsn, chain
    before = read_states(dsn, room)
    for group in (first, second):
        store_group(dsn, group, room, {})
        execute(dsn, f"delete from event_to_state_groups where state_group = {group}")
    store_group(dsn, third, room, {"create": "$other", "topic": "$t2", "alias": "$a"})
    execute(dsn, f"delete from state_groups where id in ({first}, {second})")
    # A compressor stores the fifth group as a delta of the third.
    store_group(dsn, last, room, {"topic": "$t4"}, third)
    releases.publish()
    expected = {group: state for group, state in before.items() if group in (third, fourth, last)}

    printed = print_plan(releases, "--room", room)
    run_sql(dsn, printed, tmp_path)
    restored = read_states(dsn, room)
    for group, state in expected.items():
        assert restored[group] == state | {("create", ""): "$other", ("alias", ""): "$a"}
    assert printed.count(f"({third},") == 2
    assert f"({last}," not in printed

    for _ in range(2):
        run_sql(dsn, print_plan(releases, "--room", room, "--overwrite"), tmp_path)
        assert read_states(dsn, room) == expected


def test_lost_rows_are_restored_from_the_last_correct_release(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path
) -> None:
    """The newest release with the lost rows has wrong values; an earlier release has the right values."""
    dsn, (room, (first, second, third, *_)) = releases.dsn, chain
    before = read_states(dsn, room)
    for group in (first, second):
        store_group(dsn, group, room, {})
        execute(dsn, f"delete from event_to_state_groups where state_group = {group}")
    execute(dsn, f"delete from state_groups where id in ({first}, {second})")
    store_group(dsn, third, room, {"create": "$other", "topic": "$t2", "name": "$n", "rules": "$r"})
    releases.publish()
    store_group(dsn, third, room, {"rules": "$r"})
    releases.publish()
    run_sql(dsn, print_plan(releases, "--room", room, "--overwrite"), tmp_path)
    assert read_states(dsn, room) == {group: state for group, state in before.items() if group >= third}


def test_a_group_that_was_stored_without_rows_is_restored(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path
) -> None:
    dsn, (room, groups) = releases.dsn, chain
    before = read_states(dsn, room)
    for group in groups[:2]:
        store_group(dsn, group, room, {})
        execute(dsn, f"delete from event_to_state_groups where state_group = {group}")
    execute(dsn, f"delete from state_groups where id in ({groups[0]}, {groups[1]})")
    store_group(dsn, groups[2], room, {})
    releases.publish()
    run_sql(dsn, print_plan(releases, str(groups[2])), tmp_path)
    assert read_states(dsn, room) == {group: before[group] for group in groups[2:]}


def test_a_group_with_another_predecessor_gets_no_second_one(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path
) -> None:
    """A plan is executed after Synapse stored the group otherwise."""
    dsn, (_, (first, _, third, *_)) = releases.dsn, chain
    execute(dsn, f"delete from state_group_edges where state_group = {third}")
    releases.publish()
    printed = print_plan(releases, str(third))
    execute(dsn, f"insert into state_group_edges values ({third}, {first})")
    run_sql(dsn, printed, tmp_path)
    edges = [row for row in read_tables(dsn)["state_group_edges"] if row[0] == third]
    assert edges == [(third, first)]


def test_two_rows_of_the_oldest_release_both_remain(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path
) -> None:
    """It is unknown which row is wrong. A later row with another event is wrong."""
    dsn, (room, (_, group, *_)) = releases.dsn, chain
    piece = f"{group}, '{room}', 'name', ''"
    execute(
        dsn,
        f"insert into state_groups_state values ({piece}, '$a'), ({piece}, '$z')",
        f"insert into event_to_state_groups values ('$twice', {group})",
    )
    # The group has another event, so the first release has another group of this number.
    execute(dsn, f"update state_groups set event_id = '$twice' where id = {group}")
    releases.publish()
    before = read_tables(dsn)
    assert "changed_rows" not in print_plan(releases, "--room", room, "--overwrite")
    execute(dsn, f"insert into state_groups_state values ({piece}, '$other')")
    releases.publish()
    run_sql(dsn, print_plan(releases, "--room", room, "--overwrite"), tmp_path)
    assert read_tables(dsn) == before


@pytest.mark.parametrize("stored", ["as before", "in full"])
def test_a_row_that_an_index_hid_stays_alone(
    releases: StateReleases, chain: tuple[str, list[int]], tmp_path: Path, stored: str
) -> None:
    """Synapse stores the second topic again, because it does not find the row."""
    dsn, (room, (first, second, *_)) = releases.dsn, chain
    before = expected = read_states(dsn, room)
    wrong = f"{second}, '{room}', 'topic', ''"
    execute(dsn, f"insert into state_groups_state values ({wrong}, '$a'), ({wrong}, '$z')")
    if stored == "in full":
        rows = [
            f"({second}, '{room}', '{type_}', '', '{event}')"
            for (type_, _), event in before[first].items()
            if type_ != "topic"
        ]
        execute(
            dsn,
            f"insert into state_groups_state values {', '.join(rows)}",
            f"delete from state_group_edges where state_group = {second}",
            f"delete from event_to_state_groups where state_group = {first}",
        )
        delete_group(dsn, first)
        expected = {group: state for group, state in before.items() if group != first}
    releases.publish()
    # Both rows remain unless a user requests their deletion.
    assert "DELETE FROM state_groups_state" not in print_plan(releases, "--room", room)
    for _ in range(2):
        run_sql(dsn, print_plan(releases, "--room", room, "--overwrite"), tmp_path)
        assert read_states(dsn, room) == expected
        with psycopg.connect(dsn) as source:
            repeated = "select from state_groups_state group by state_group, type, state_key having count(*) > 1"
            assert source.execute(repeated).rowcount == 0
