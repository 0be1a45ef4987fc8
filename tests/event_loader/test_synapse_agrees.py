"""The product loads the same events as a real Synapse from rows of ``event_json``, and rejects the same rows."""

from collections import Counter
from pathlib import Path

import pytest

from synapse_lakehouse.events import load_stored_event
from tests.event_loader import answers
from tests.event_loader.documents import rows


def test_loaded_events_equal_recorded_answers() -> None:
    recorded, stored_rows = answers.load(), list(rows(answers.RECORDED_ROWS, answers.SEED))
    assert answers.digest(stored_rows) == recorded["rows"], "run `make answers`"
    own_answers = answers.answers_of_product(stored_rows)
    differences = [
        (row, synapse, own)
        for row, synapse, own in zip(stored_rows, recorded["answers"], own_answers, strict=True)
        if synapse != own
    ]
    assert differences == []
    reasons = Counter(load_stored_event.load_event(*row).unloadable for row in stored_rows)
    assert reasons.keys() - {None} == load_stored_event.UNLOADABLE_REASONS.keys() - {"metadata_missing"}
    assert reasons[None] > 500


def test_thousands_of_levels_make_json_unloadable() -> None:
    text = f'{{"type": "m.room.message", "content": {"[" * 90_000}{"]" * 90_000}}}'
    assert load_stored_event.load_event("$1", "!r", text, text, 1, "1").unloadable == "not_json"


def test_json_near_the_nesting_limit_is_unloadable() -> None:
    for levels in range(800, 1000):
        content = f'{{"pair": "\\ud83d\\ude00", "levels": {"[" * levels}{"]" * levels}}}'
        text = f'{{"type": "m.room.message", "room_id": "!r", "sender": "@a:b", "content": {content}}}'
        assert load_stored_event.load_event("$1", "!r", text, "{}", 1, "1").unloadable in {
            "nested_too_deep",
            "not_json",
        }


def test_missing_metadata_differs_from_empty_metadata() -> None:
    row = next(row for row in rows(500, "missing") if load_stored_event.load_event(*row).unloadable is None)
    assert load_stored_event.load_event(*row._replace(internal_metadata=None)).unloadable == "metadata_missing"


@pytest.mark.heavy
def test_thousands_of_other_rows_load_as_in_synapse(source_copy: str, tmp_path: Path) -> None:
    stored_rows = list(rows(20_000, "other"))
    synapse_answers = answers.answers_of_synapse(source_copy, stored_rows, tmp_path)
    own_answers = answers.answers_of_product(stored_rows)
    assert [
        (row, answer)
        for row, answer, own in zip(stored_rows, synapse_answers, own_answers, strict=True)
        if answer != own
    ] == []
