"""The queries of the integrity runbook return the documented rows, on the published sample and on its source."""

import re
from collections import defaultdict

import psycopg

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from tests.conftest import Published
from tests.support.state_rooms import State, resolved

RUNBOOK = (PROJECT_FOLDER / "docs/runbooks/integrity.md").read_text()
STATE_OF_GROUP, AFFECTED_EVENTS = (
    next(block for block in re.findall(r"^```sql\n(.*?)^```", RUNBOOK, re.DOTALL | re.MULTILINE) if part in block)
    for part in ("with recursive", "silver.state_changes")
)
EXAMPLE = "1234"
GROUPS = 20


def test_the_state_of_a_group_without_an_index(published: Published) -> None:
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
            assert state == resolved(edges, rows, group)


def test_the_events_of_changed_groups(published: Published) -> None:
    assert EXAMPLE in AFFECTED_EVENTS
    assert published.rows("query", AFFECTED_EVENTS) == []
    state_changes = "(select state_group as cause, state_group from bronze.event_to_state_groups)"
    (row,) = published.rows("query", "select state_group, count(*) as n from bronze.event_to_state_groups"
                            " group by all order by n desc, state_group limit 1")  # fmt: skip
    query = AFFECTED_EVENTS.replace("silver.state_changes", state_changes).replace(EXAMPLE, str(row["state_group"]))
    assert len(published.rows("query", query)) == row["n"]
