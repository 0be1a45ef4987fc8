"""The queries of the integrity runbook return the documented rows, on the published sample and on its source."""

import re
from collections import defaultdict
from collections.abc import Iterator

import psycopg
import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from tests.conftest import PublishedLake
from tests.support.state_rooms import State, resolve_state

RUNBOOK = (PROJECT_FOLDER / "docs/runbooks/integrity.md").read_text()
STATE_OF_GROUP, AFFECTED_EVENTS, DELETE_LEFTOVERS = (
    next(block for block in re.findall(r"^```sql\n(.*?)^```", RUNBOOK, re.DOTALL | re.MULTILINE) if part in block)
    for part in ("with recursive", "silver.state_changes", "table stray")
)
EXAMPLE = "1234"
OTHER_EXAMPLE = "1235"
GROUPS = 20


def test_the_state_of_a_group_without_an_index(published: PublishedLake) -> None:
    rows: dict[int, State] = defaultdict(dict)
    with psycopg.connect(published.source.dsn, autocommit=True) as source:
        edges: dict[int, int] = dict(
            source.execute("select state_group, prev_state_group from state_group_edges").fetchall()
        )
        stored = source.execute("select state_group, type, state_key, event_id from state_groups_state")
        for group, type_, key, event in stored.fetchall():
            rows[group][type_, key] = event
        delta_groups = sorted(edges)[:: max(1, len(edges) // GROUPS)]
        assert len(delta_groups) >= GROUPS
        for group in delta_groups:
            cursor = source.execute(STATE_OF_GROUP.replace(EXAMPLE, str(group)).encode())
            while cursor.description is None:
                assert cursor.nextset()
            state = {(type_, key): event for type_, key, event, _ in cursor.fetchall()}
            assert state == resolve_state(edges, rows, group)


def test_the_events_of_changed_groups(published: PublishedLake) -> None:
    assert EXAMPLE in AFFECTED_EVENTS
    assert published.rows("query", AFFECTED_EVENTS) == []
    state_changes = "(select state_group as cause, state_group from bronze.event_to_state_groups)"
    (row,) = published.rows("query", "select state_group, count(*) as n from bronze.event_to_state_groups"
                            " group by all order by n desc, state_group limit 1")  # fmt: skip
    query = AFFECTED_EVENTS.replace("silver.state_changes", state_changes).replace(EXAMPLE, str(row["state_group"]))
    assert len(published.rows("query", query)) == row["n"]


@pytest.fixture
def leftovers(source_copy: str) -> Iterator[tuple[psycopg.Connection, dict[str, int]]]:
    """A database with leftover rows of a deleted group, and a predecessor whose row of ``state_groups`` is lost."""
    with psycopg.connect(source_copy, autocommit=True) as source:
        row = source.execute("""select edges.state_group, edges.prev_state_group from state_group_edges as edges
            join state_groups_state as own on own.state_group = edges.prev_state_group order by 1 limit 1""").fetchone()
        assert row is not None
        groups = {"live": row[0], "lost": row[1], "deleted": 900_000_000}
        source.execute("delete from state_groups where id = %(lost)s", groups)
        source.execute("insert into state_groups_state values (%(deleted)s, '!r', 'm.room.topic', '', '$t')", groups)
        source.execute("insert into state_group_edges values (%(deleted)s, %(live)s)", groups)
        yield source, groups


def test_only_leftovers_of_deleted_groups_are_deleted(
    leftovers: tuple[psycopg.Connection, dict[str, int]],
) -> None:
    source, groups = leftovers
    before = count_rows(source)
    for example, other in (("deleted", "lost"), ("live", "lost")):
        numbers = DELETE_LEFTOVERS.replace(EXAMPLE, str(groups[example])).replace(OTHER_EXAMPLE, str(groups[other]))
        source.execute(numbers.encode())
    after = count_rows(source)
    assert before["state_groups_state"].keys() - after["state_groups_state"].keys() == {groups["deleted"]}
    assert before["state_group_edges"].keys() - after["state_group_edges"].keys() == {groups["deleted"]}
    assert all(before[table][group] == rows for table in after for group, rows in after[table].items())


def test_leftovers_are_deleted_without_an_index(leftovers: tuple[psycopg.Connection, dict[str, int]]) -> None:
    source, groups = leftovers
    statements = DELETE_LEFTOVERS.replace(EXAMPLE, str(groups["deleted"])).split(";")
    plans = []
    for statement in filter(None, map(str.strip, statements)):
        if statement.startswith(("create", "delete")):
            plans.append(str(source.execute(f"explain {statement}".encode()).fetchall()))
        source.execute(statement.encode())
    assert len(plans) == 3
    assert not [plan for plan in plans if "Index" in plan or "Bitmap" in plan]
    assert all("Seq Scan" in plan for plan in plans)


def count_rows(source: psycopg.Connection) -> dict[str, dict[int, int]]:
    """The number of rows of each state group, by table."""
    return {
        table: dict(source.execute(f"select state_group, count(*) from {table} group by 1".encode()).fetchall())
        for table in ("state_groups_state", "state_group_edges")
    }
