"""A state group whose state changes between releases is reported with its cause until it is repaired."""

from typing import Any

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from tests.support.branch_builds import FULL, GROUP_TABLES, STATE_TABLES
from tests.support.bronze_rows import append, append_groups, create_tables
from tests.support.dbt import DbtSession

Rows = set[tuple[Any, ...]]
BRANCHES = [f"run_2026111{day}T000000Z_0000000{day}" for day in range(1, 7)]
TABLES = (*GROUP_TABLES, "bronze.event_to_state_groups")
DAMAGE = [
    # Groups 1 and 2 lose the topic. Group 3 sets another one.
    "delete from bronze.state_groups_state where state_group = 1 and type = 'topic'",
    # Group 11 loses its predecessor, and group 21 gets another name.
    "delete from bronze.state_group_edges where state_group = 11",
    "update bronze.state_groups_state set event_id = '$other' where state_group = 21",
    # Group 70 loses the topic, so 72 loses it too. Group 71 before 72 loses its own name.
    "delete from bronze.state_groups_state where state_group = 70 and type = 'topic'",
    "delete from bronze.state_groups_state where state_group = 71 and type = 'name'",
    # An event needs group 90.
    "delete from bronze.state_groups where id = 90",
]
LEGAL_CHANGES = [
    # A compression stores group 5 as a delta of group 4.
    "insert into bronze.state_group_edges (state_group, prev_state_group) values (5, 4)",
    "delete from bronze.state_groups_state where state_group = 5 and type <> 'name'",
    # Two groups are deleted, and one ID is used again.
    "delete from bronze.state_groups where id in (30, 31)",
    "delete from bronze.state_groups_state where state_group in (30, 31)",
    "insert into bronze.state_groups (id, room_id, event_id) values (31, '!e', '$later')",
    "insert into bronze.state_groups_state (state_group, type, state_key, event_id) values (31, 'name', '', '$later')",
    # The number of a group is used again for the same event, after which Synapse stored two groups.
    "update bronze.state_groups_state set event_id = '$earlier' where state_group = 80 and type = 'name'",
    "update bronze.event_to_state_groups set state_group = 81 where event_id = '$x'",
]
CREATED_AFTER_A_LOSS = [
    # Synapse stores group 5 as a difference to group 1, which has no topic any more.
    "insert into bronze.state_groups (id, room_id, event_id) values (5, '!a', '$5')",
    "insert into bronze.state_group_edges (state_group, prev_state_group) values (5, 1)",
    "insert into bronze.state_groups_state (state_group, type, state_key, event_id) values (5, 'other', '', '$5')",
]
REPAIR = [
    "insert into bronze.state_groups_state (state_group, type, state_key, event_id) values (1, 'topic', '', '$t')",
    "insert into bronze.state_group_edges (state_group, prev_state_group) values (11, 10)",
    "insert into bronze.state_groups_state (state_group, type, state_key, event_id) values (90, 'name', '', '$y')",
]
CHANGES = {
    (1, 1, "topic", "$t", None),
    (2, 1, None, None, None),
    (11, 11, None, None, None),
    (12, 11, None, None, None),
    (21, 21, "name", "$n21", "$other"),
    (70, 70, "topic", "$t", None),
    (71, 71, "name", "$n71", "$n70"),
    (72, 70, None, None, None),
    (90, 90, None, None, None),
}


def _publish(session: DbtSession, branch: str) -> None:
    for name in [*TABLES, *STATE_TABLES]:
        if session.sql(f"select 1 from {name}.refs where name = '{branch}'"):
            session.sql(f"call lake.system.fast_forward('{name}', 'main', '{branch}')")


def _resolve(session: DbtSession, branch: str, minimum_rows: int = 0) -> Rows:
    """Return the rows of ``silver.state_changes`` after a resolve of the changed rooms, or of all rooms."""
    columns = ("state_group", "cause", "type", "event_before", "event_after")
    assert session.resolve(branch, minimum_rows) == (minimum_rows == 0 and branch != BRANCHES[0])
    rows = session.sql(f"select {', '.join(columns)} from silver.state_changes", branch)
    changes = {tuple(row[column] for column in columns) for row in rows}
    assert len(changes) == len(rows)
    return changes


@pytest.mark.parametrize("minimum_rows", [0, FULL])
def test_a_loss_that_continues_is_found_in_each_run(session: DbtSession, lake: Settings, minimum_rows: int) -> None:
    create_tables(open_catalog(lake), [name.removeprefix("bronze.") for name in TABLES])
    # The groups of !f do not change. If most groups changed, all rooms would be resolved.
    rooms = dict.fromkeys(range(1, 5), "!a") | dict.fromkeys(range(40, 60), "!f")
    append_groups(
        open_catalog(lake), rooms, {2: 1, 3: 2, 4: 3},
        {1: {"create": "$a", "topic": "$t", "name": "$n"}, 2: {"avatar": "$v"}, 3: {"topic": "$t3"}, 4: {}},
    )  # fmt: skip
    losses: list[tuple[tuple[int, str], Rows]] = [
        ((1, "topic"), {(1, 1, "topic", "$t", None), (2, 1, None, None, None)}),
        # A group that is a delta of the cause loses a row of its own.
        ((2, "avatar"), {(2, 2, "avatar", "$v", None), (3, 2, None, None, None), (4, 2, None, None, None)}),
        # A group that was created after the loss of the topic is affected, too.
        ((1, "name"), {(1, 1, "name", "$n", None), (5, 1, None, None, None)}),
    ]
    first, *branches, last_but_one, last = BRANCHES
    expected: Rows = set()
    assert _resolve(session, first, minimum_rows) == expected
    _publish(session, first)
    for branch, ((group, name), rows) in zip(branches, losses, strict=True):
        session.sql(f"delete from bronze.state_groups_state where state_group = {group} and type = '{name}'", branch)
        if branch == branches[1]:
            for statement in CREATED_AFTER_A_LOSS:
                session.sql(statement, branch)
        expected |= rows
        assert _resolve(session, branch, minimum_rows) == expected
        _publish(session, branch)

    # A partial repair is no further change. The group that was created after the loss is repaired with the others.
    session.sql(REPAIR[0], last_but_one)
    assert _resolve(session, last_but_one, minimum_rows) == expected
    _publish(session, last_but_one)
    lost_rows = "(2, 'avatar', '', '$v'), (1, 'name', '', '$n')"
    session.sql(
        f"insert into bronze.state_groups_state (state_group, type, state_key, event_id) values {lost_rows}", last
    )
    assert _resolve(session, last, minimum_rows) == set()


def test_changed_state_is_found_until_it_is_repaired(session: DbtSession, lake: Settings) -> None:
    create_tables(open_catalog(lake), [name.removeprefix("bronze.") for name in TABLES])
    rooms = {"!a": range(1, 6), "!b": range(10, 13), "!c": range(20, 22), "!d": [30], "!e": [31], "!f": range(40, 60)}
    rooms |= {"!g": range(70, 73), "!i": [90]}
    append_groups(
        open_catalog(lake), {group: room for room, groups in rooms.items() for group in groups},
        {2: 1, 3: 2, 4: 3, 11: 10, 12: 11, 21: 20, 71: 70, 72: 70},
        {
            1: {"create": "$a", "topic": "$t", "name": "$n"}, 2: {"name": "$n2"}, 3: {"topic": "$t3"}, 4: {},
            5: {"create": "$a", "topic": "$t3", "name": "$n5"}, 10: {"create": "$b"}, 11: {"name": "$n11"}, 12: {},
            20: {"create": "$c", "name": "$n20"}, 21: {"name": "$n21"}, 30: {"create": "$d"}, 31: {"create": "$e"},
            70: {"create": "$g", "topic": "$t", "name": "$n70"}, 71: {"name": "$n71"}, 72: {"avatar": "$v"},
            80: {"create": "$h", "name": "$x"}, 90: {"create": "$i", "name": "$y"},
        },
    )  # fmt: skip
    append(open_catalog(lake), "state_groups", [{"id": 80, "room_id": "!h", "event_id": "$x"}])
    uses = [{"event_id": "$x", "state_group": 80}, {"event_id": "$y", "state_group": 90}]
    append(open_catalog(lake), "event_to_state_groups", uses)
    first, second, third, fourth, *_ = BRANCHES
    assert _resolve(session, first) == set()
    _publish(session, first)

    for statement in [*DAMAGE, *LEGAL_CHANGES]:
        session.sql(statement, second)
    assert _resolve(session, second, FULL) == CHANGES
    assert _resolve(session, second) == CHANGES
    _publish(session, second)

    # One damage is repaired. The others are still reported, although nothing else changes. A lost group returns without
    # a row.
    session.sql(REPAIR[0], third)
    session.sql("insert into bronze.state_groups (id, room_id) values (90, '!i')", third)
    session.sql("delete from bronze.state_groups_state where state_group = 90 and type = 'name'", third)
    assert _resolve(session, third) == {row for row in CHANGES if row[1] != 1}
    _publish(session, third)

    session.sql(REPAIR[1], fourth)
    session.sql(REPAIR[2], fourth)
    session.sql("delete from bronze.state_groups where id in (21, 70, 71, 72)", fourth)
    assert _resolve(session, fourth) == set()
