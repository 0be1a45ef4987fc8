"""Explanations of visibility rules, and the time of a visibility query."""

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
def tokyo_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("tokyo_time")
def test_a_moment_is_in_utc_in_every_time_zone() -> None:
    assert as_of_milliseconds(datetime(2026, 11, 18)) == 1_794_960_000_000  # noqa: DTZ001 - as typer parses it


@pytest.mark.parametrize("rule", VISIBILITY_RULES, ids=lambda rule: rule.name)
def test_an_explanation_ends_with_the_deciding_question(rule: VisibilityRule) -> None:
    index = VISIBILITY_RULES.index(rule)
    *earlier_lines, last = explain_rule(VISIBILITY_RULES[index].name)
    assert last == f"{VISIBILITY_RULES[index].question} Yes: {'shown' if VISIBILITY_RULES[index].shows else 'hidden'}."
    assert len(earlier_lines) == index
    assert all(line.endswith("? No.") for line in earlier_lines)


def test_each_question_contains_all_of_its_conditions() -> None:
    """The answer "no" must be true for every user for whom a later rule decides."""
    questions = {rule.name: rule.question for rule in VISIBILITY_RULES}
    conditions = {
        "soft_failed": ("soft-failed", "administrator"),
        "world_readable": ("world-readable", "erased"),
        "shared": ("shared", "peeking", "erased"),
        "invited": ("joined and invited", "was the user invited"),
    }
    assert all(phrase in questions[name] for name, parts in conditions.items() for phrase in parts)


def test_the_last_questions_end_the_explanation() -> None:
    assert explain_rule("call_invite")[-1].endswith("Yes: hidden.")
    assert explain_rule("sender_erased")[-1].endswith("Yes: shown without its content.")


def test_unit_tests_of_the_model_have_every_rule() -> None:
    tests = yaml.safe_load(UNIT_TESTS.read_text())["unit_tests"]
    expected = {row["rule"] for test in tests if test["model"] == "event_visibility" for row in test["expect"]["rows"]}
    assert expected == {rule.name for rule in VISIBILITY_RULES} | {"call_invite", "sender_erased"}
