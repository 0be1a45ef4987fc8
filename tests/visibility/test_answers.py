"""The recorded answers belong to the shipped sample, are complete, and use the content of replaced state events."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import duckdb
import psycopg
import pytest

from sample import visibility_answers
from synapse_lakehouse.local.postgres import sample
from tests.visibility import record

EXPECTED_ANSWERS = """
select (select count(*) from (
    select room_id, state_key from events where type = 'm.room.member'
    union select room_id, user_id from room_memberships
    union select room_id, user_id from local_current_membership
    union select room_id, null from events
  ) as asking (room_id, user_id) join events using (room_id)
  where user_id is null or user_id like '%:synapse.example') * 2
"""
OWN_LEAVES = """
select e.event_id, e.state_key
from events e join event_json j using (event_id)
join room_memberships new using (event_id)
join room_memberships old on old.event_id = j.json::jsonb #>> '{unsigned,replaces_state}'
where e.type = 'm.room.member' and new.membership = 'leave' and old.membership in ('join', 'invite')
  and e.state_key like '%:synapse.example' and e.sender not in (select user_id from erased_users)
"""


@pytest.mark.parametrize("path", [record.SAMPLE, record.CASES], ids=["sample", "cases"])
def test_answers_belong_to_the_shipped_sample(path: Path) -> None:
    recorded = visibility_answers.load(path)
    assert recorded.about["sample"] == hashlib.sha256(sample.SAMPLE_DUMP.read_bytes()).hexdigest(), "run `make answers`"
    if path == record.CASES:
        assert recorded.about["cases"] == hashlib.sha256(record.CASES_SQL.read_bytes()).hexdigest(), (
            "run `make answers`"
        )
    recorded_answers = recorded.answers
    counts = duckdb.sql("""
        select count(*), count(distinct (room_id, user_id, event_id, peeking)), count(distinct outcome),
            count(*) filter ((outcome = 'hidden') <> (membership is null)),
            count(distinct room_id) - count(distinct room_id) filter (user_id is null)
        from recorded_answers
    """)
    assert counts.fetchone() == (len(recorded_answers), len(recorded_answers), 3, 0, 0)


def test_all_events_of_the_sample_have_answers_for_all_users(sample_dsn: str) -> None:
    recorded = visibility_answers.load(record.SAMPLE)
    recorded_answers = recorded.answers
    assert not recorded.errors
    with psycopg.connect(sample_dsn) as source:
        assert source.execute(EXPECTED_ANSWERS).fetchone() == (len(recorded_answers),)
        leaves = source.execute(OWN_LEAVES).fetchall()
    leave_answers = duckdb.sql(
        "select event_id, user_id, outcome from recorded_answers where event_id = any($leaves)",
        params={"leaves": [e for e, _ in leaves]},
    )
    assert leaves
    outcomes = [row[2] for row in leave_answers.fetchall() if row[:2] in set(leaves)]
    # Without the replaced content, Synapse hides these leaves in rooms with the history visibility "joined".
    assert outcomes == ["full"] * 2 * len(leaves)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["sample", "cases"])
def test_recorded_answers_are_reproducible(kind: str, source_copy: str, tmp_path: Path) -> None:
    record_answers: Callable[[str, Path], None] = getattr(record, f"record_{kind}")
    record_answers(source_copy, tmp_path / "new.parquet")
    recorded, new = (
        visibility_answers.load(getattr(record, kind.upper())),
        visibility_answers.load(tmp_path / "new.parquet"),
    )
    assert new.about == recorded.about
    assert new.errors == recorded.errors
    assert new.answers.equals(recorded.answers)
