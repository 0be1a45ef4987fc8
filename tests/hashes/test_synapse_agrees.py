"""The product redacts and hashes events as a real Synapse does, in all of Synapse's room versions."""

import json
import re

import psycopg
import pytest
import yaml

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.events import event_hashes, load_stored_event, redaction
from tests.hashes import answers

RECORDED_DIGESTS = json.loads(answers.ANSWERS_FILE.read_text())


@pytest.fixture(scope="module")
def events_by_name(sample_dsn: str) -> dict[str, list[answers.Event]]:
    return answers.input_events(sample_dsn)


@pytest.mark.parametrize("name", RECORDED_DIGESTS)
def test_redactions_and_hashes_equal_recorded_answers(
    name: str, events_by_name: dict[str, list[answers.Event]]
) -> None:
    recorded = RECORDED_DIGESTS[name]
    product = {
        version: answers.digest(answers.answers_of_product(events_by_name[name], version, synapse_answers["refused"]))
        for version, synapse_answers in recorded.items()
    }
    assert product == recorded, "run `make answers`; test_recorded_answers_are_reproducible shows the differences"


def test_events_of_the_sample_have_the_hashes_of_synapse(sample_dsn: str) -> None:
    with psycopg.connect(sample_dsn) as source:
        stored = source.execute(
            "select event_id, room_id, json, internal_metadata, format_version, room_version from event_json"
            " left join rooms using (room_id)"
        ).fetchall()
    loaded = [load_stored_event.load_event(*row) for row in stored]
    verdicts = [event.hash_verdict for event in loaded]
    assert {event.unloadable for event in loaded} == {None}
    assert set(verdicts) == {"intact", "pruned"}
    assert 0 < verdicts.count("pruned") < len(stored) / 50


def test_room_versions_are_those_of_synapse() -> None:
    assert redaction.ROOM_VERSION_RULES.keys() == RECORDED_DIGESTS["corpus"].keys()


def test_the_table_description_lists_all_verdicts_and_reasons() -> None:
    models = yaml.safe_load((PROJECT_FOLDER / "dbt" / "models" / "gold" / "_gold.yml").read_text())["models"]
    (columns,) = (model["columns"] for model in models if model["name"] == "event_hashes")
    described = "".join(column["description"] for column in columns if column["name"] in ("verdict", "reason"))
    names = set(re.findall(r"`([a-z_]+)`", described))
    assert names == event_hashes.HASH_VERDICTS.keys() | event_hashes.HASH_REASONS.keys()


@pytest.mark.heavy
def test_recorded_answers_are_reproducible(events_by_name: dict[str, list[answers.Event]]) -> None:
    for name, events in events_by_name.items():
        for version, synapse_answers in answers.answers_of_synapse(events).items():
            synapse_digest = answers.digest(synapse_answers)
            own_answers = answers.answers_of_product(events, version, synapse_digest["refused"])
            assert [
                (answer, event)
                for answer, own, event in zip(synapse_answers, own_answers, events, strict=True)
                if answer != own
            ] == []
            assert synapse_digest == RECORDED_DIGESTS[name][version]
