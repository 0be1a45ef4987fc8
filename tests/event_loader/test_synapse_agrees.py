"""What is loaded of any row of ``event_json``, and what is not, is what a real Synapse loads."""

from collections import Counter
from pathlib import Path

import pytest

from synapse_lakehouse.events import load_stored_event
from tests.event_loader import answers
from tests.event_loader.documents import rows


def test_every_recorded_answer_is_synapse_s() -> None:
    recorded, questions = answers.load(), list(rows(answers.RECORDED_ROWS, answers.SEED))
    assert answers.digest(questions) == recorded["rows"], "`make answers` records anew"
    own_answers = answers.answers_of_product(questions)
    differences = [
        (row, synapse, own)
        for row, synapse, own in zip(questions, recorded["answers"], own_answers, strict=True)
        if synapse != own
    ]
    assert differences == []
    reasons = Counter(load_stored_event.load_event(*row).unloadable for row in questions)
    assert reasons.keys() - {None} == load_stored_event.UNLOADABLE_REASONS.keys() - {"metadata_missing"}
    assert reasons[None] > 500


def test_thousands_of_levels_stop_nothing() -> None:
    text = f'{{"type": "m.room.message", "content": {"[" * 90_000}{"]" * 90_000}}}'
    assert load_stored_event.load_event("$1", "!r", text, text, 1, "1").unloadable == "not_json"


def test_a_key_at_the_deepest_level_can_be_parsed() -> None:
    for levels in range(800, 1000):
        content = f'{{"pair": "\\ud83d\\ude00", "levels": {"[" * levels}{"]" * levels}}}'
        text = f'{{"type": "m.room.message", "room_id": "!r", "sender": "@a:b", "content": {content}}}'
        assert load_stored_event.load_event("$1", "!r", text, "{}", 1, "1").unloadable in {
            "nested_too_deep",
            "not_json",
        }


def test_metadata_that_is_not_there_is_not_taken_for_empty() -> None:
    row = next(row for row in rows(500, "missing") if load_stored_event.load_event(*row).unloadable is None)
    assert load_stored_event.load_event(*row._replace(internal_metadata=None)).unloadable == "metadata_missing"


@pytest.mark.heavy
def test_synapse_agrees_on_thousands_of_other_rows(source_copy: str, tmp_path: Path) -> None:
    questions = list(rows(20_000, "other"))
    synapse_answers = answers.answers_of_synapse(source_copy, questions, tmp_path)
    own_answers = answers.answers_of_product(questions)
    assert [
        (row, answer) for row, answer, own in zip(questions, synapse_answers, own_answers, strict=True) if answer != own
    ] == []
