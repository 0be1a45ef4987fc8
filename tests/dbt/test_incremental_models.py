"""After any change of bronze, incremental models contain the rows of a full build."""

import random
from collections import Counter

import pytest

from tests.conftest import VisibilityLake
from tests.support.branch_builds import (
    BRONZE_TABLES,
    FULL,
    GROUP_TABLES,
    MODELS,
    PART,
    STATE_TABLES,
    WHOLE,
    branched_tables,
    build_rows,
    copy_branch,
    publish,
)
from tests.support.bronze_changes import CHANGES, BronzeChanges


def _check_builds_in_part(lake: VisibilityLake, batches: list[list[str]], seed: str) -> None:
    history = BronzeChanges(lake, random.Random(seed))
    with branched_tables(lake):
        row_count = len(build_rows(lake, PART)["silver.event_visibility_inputs"])
        shares, partial_resolves = [], []
        for changes in batches:
            publish(lake.session)
            for name in changes:
                getattr(history, name)()
            partial_resolves.append(lake.session.resolve(PART, 0))
            for table in (*BRONZE_TABLES, *GROUP_TABLES):
                copy_branch(lake.session, table, PART, WHOLE)
            assert not lake.session.resolve(WHOLE, FULL)
            for table in STATE_TABLES:
                state = [
                    Counter(map(repr, lake.session.sql(f"select * from {table}", branch))) for branch in (PART, WHOLE)
                ]
                assert state[0] == state[1], (changes, table)
            partial, full = build_rows(lake, PART, is_partial=True), build_rows(lake, WHOLE)
            shares.append(lake.session.rows_of_last_commit("silver.event_visibility_inputs", PART) / row_count)
            for model in MODELS:
                differing_rows = set(map(repr, partial[model])) ^ set(map(repr, full[model]))
                assert differing_rows == set(), (changes, model)
                assert len(partial[model]) == len(full[model]), (changes, model)
            print(changes, f"{shares[-1]:.1%}", partial_resolves[-1])
        assert sorted(shares)[len(shares) // 2] < 0.2
        assert any(partial_resolves)


def test_affected_rows_are_those_of_a_full_build(visibility_lake: VisibilityLake) -> None:
    """A quick variant of the tests below: five changes that need no new state."""
    history = BronzeChanges(visibility_lake, random.Random("few"))
    with branched_tables(visibility_lake):
        build_rows(visibility_lake, PART)
        publish(visibility_lake.session)
        history.add_memberships()
        history.toggle_outliers()
        history.delete_redactions()
        history.change_extremities()
        history.change_times_and_senders()
        for table in (*BRONZE_TABLES, *STATE_TABLES):
            copy_branch(visibility_lake.session, table, PART, WHOLE)
        partial, full = build_rows(visibility_lake, PART, is_partial=True), build_rows(visibility_lake, WHOLE)
        assert partial == full
        for name in ("silver.event_visibility_inputs", "gold.room_timeline"):
            assert 0 < visibility_lake.session.rows_of_last_commit(name, PART) < len(full[name]) / 4
        # The changes may affect all hours, so only the kind of commit shows that the table was built in part.
        assert full["gold.federation_delay"]
        assert visibility_lake.session.operation_of_last_commit("gold.federation_delay", PART) == "append"
        # An earlier try of the run wrote to the branch: its next try starts from main.
        visibility_lake.session.sql("delete from silver.event_fields where event_id > '$b'", PART)
        assert build_rows(visibility_lake, PART, is_partial=True) == full


@pytest.mark.heavy
def test_a_build_in_part_equals_a_full_build(visibility_lake: VisibilityLake) -> None:
    _check_builds_in_part(
        visibility_lake,
        [
            [
                "add_events", "reject_room_settings", "delete_redactions", "delete_events", "erase_users",
                "add_positions_of_outliers", "complete_partial_states",
            ]
        ],
        "few",
    )  # fmt: skip


@pytest.mark.heavy
def test_many_changes_cause_a_full_build(visibility_lake: VisibilityLake) -> None:
    history = BronzeChanges(visibility_lake, random.Random("too much"))
    with branched_tables(visibility_lake):
        before = build_rows(visibility_lake, PART)["silver.event_visibility_inputs"]
        publish(visibility_lake.session)
        history.set("events", "outlier = not outlier", "true")
        after = build_rows(visibility_lake, PART, is_partial=True, share=0.99)["silver.event_visibility_inputs"]
        assert (
            visibility_lake.session.rows_of_last_commit("silver.event_visibility_inputs", PART)
            == len(after)
            == len(before)
        )
        assert [row["outlier"] for row in after] == [not row["outlier"] for row in before]


@pytest.mark.heavy
def test_random_changes_in_part_equal_a_full_build(visibility_lake: VisibilityLake) -> None:
    """Every change is made once, and then some are made again."""
    rng = random.Random("much")
    shuffled = rng.sample(CHANGES, len(CHANGES))
    batches = [shuffled[first : first + 3] for first in range(0, len(shuffled), 3)]
    _check_builds_in_part(visibility_lake, [*batches, *(rng.sample(CHANGES, 3) for _ in range(4))], "much")
