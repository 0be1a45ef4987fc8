"""Explanations of visibility, and times of queries about it."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest
import yaml

from synapse_lakehouse.cli.events.visibility import as_of_milliseconds
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.room_state.visibility_explanations import VISIBILITY_RULES, VisibilityRule, explain_rule

UNIT_TESTS = PROJECT_FOLDER / "dbt" / "models" / "gold" / "visibility" / "_unit_tests.yml"


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_a_moment_is_in_utc_wherever_one_is() -> None:
    assert as_of_milliseconds(datetime(2026, 11, 18)) == 1_794_960_000_000  # noqa: DTZ001 - as typer gives it


@pytest.mark.parametrize("rule", VISIBILITY_RULES, ids=lambda rule: rule.name)
def test_a_walk_ends_with_the_question_that_decided(rule: VisibilityRule) -> None:
    place = VISIBILITY_RULES.index(rule)
    *before, last = explain_rule(VISIBILITY_RULES[place].name)
    assert last == f"{VISIBILITY_RULES[place].question} Yes: {'shown' if VISIBILITY_RULES[place].shows else 'hidden'}."
    assert len(before) == place
    assert all(line.endswith("? No.") for line in before)


def test_each_question_contains_all_of_its_conditions() -> None:
    """So the answer "no" is true of everybody for whom a later rule decides."""
    questions = {rule.name: rule.question for rule in VISIBILITY_RULES}
    conditions = {
        "soft_failed": ("soft-failed", "administrator"),
        "world_readable": ("world-readable", "erased"),
        "shared": ("shared", "peeking", "erased"),
        "invited": ("joined and invited", "was the user invited"),
    }
    assert all(words in questions[name] for name, parts in conditions.items() for words in parts)


def test_the_last_questions_end_the_explanation() -> None:
    assert explain_rule("call_invite")[-1].endswith("Yes: hidden.")
    assert explain_rule("sender_erased")[-1].endswith("Yes: shown without its content.")


def test_the_models_unit_tests_have_every_rule_decide() -> None:
    tests = yaml.safe_load(UNIT_TESTS.read_text())["unit_tests"]
    expected = {row["rule"] for test in tests if test["model"] == "event_visibility" for row in test["expect"]["rows"]}
    assert expected == {rule.name for rule in VISIBILITY_RULES} | {"call_invite", "sender_erased"}
