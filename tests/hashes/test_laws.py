"""Hash verdicts are right for random events, after changes that affect the hashes and after changes that do not."""

import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse_lakehouse.events import event_hashes, load_stored_event, redaction
from tests.hashes import corpus

VERSIONS = st.sampled_from(list(redaction.ROOM_VERSION_RULES))
HASHED = st.sampled_from([version for version, rules in redaction.ROOM_VERSION_RULES.items() if rules >= 3])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
# Some keys of the corpus, and random keys, with random values.
CONTENTS = st.dictionaries(st.sampled_from(list(corpus.CONTENT)) | st.text(max_size=5), VALUES, max_size=6)
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(corpus.TYPES), "content": CONTENTS, "depth": st.integers(0, 2**53)},
    optional=dict.fromkeys(["state_key", "origin", "membership", "redacts", "sender", "unheard.of"], VALUES),
)
ROOM = "!room:example.org"


def verdict_of(
    event_id: str, room_id: str, text: str | None, version: str | None, format_version: int | None
) -> tuple[str | None, str | None]:
    """Return verdict and reason."""
    loaded = load_stored_event.load_event(event_id, room_id, text, "{}", format_version, version)
    return loaded.hash_verdict, loaded.hash_reason


def add_hashes(event: dict[str, Any], version: str) -> tuple[str, str, dict[str, Any]]:
    """Return the event ID, the room ID and the event with the hashes that its server computes."""
    rules = redaction.ROOM_VERSION_RULES[version]
    digest = base64.b64encode(event_hashes.compute_content_hash(event)).decode().rstrip("=")
    full = {**event, "hashes": {"sha256": digest}, "unsigned": {"age_ts": 1}, "signatures": {"a": {"b": "c"}}}
    event_id = event_hashes.compute_event_id(redaction.redact(full, rules), rules) if rules >= 3 else "$1:example.org"
    has_hashed_room_id = rules >= 12 and event["type"] == "m.room.create"
    return event_id, "!" + event_id[1:] if has_hashed_room_id else ROOM, full


@settings(max_examples=50)
@given(EVENTS, VERSIONS, VALUES, st.randoms(use_true_random=False))
def test_keys_outside_the_hash_change_nothing(
    event: dict[str, Any], version: str, value: Any, chance: random.Random
) -> None:
    event_id, room_id, full = add_hashes(event, version)
    changed = {**full, "unsigned": value, "signatures": value, "age_ts": value}
    shuffled = dict(chance.sample(list(changed.items()), len(changed)))
    for item in (full, changed, shuffled):
        for text in (json.dumps(item), json.dumps(item, ensure_ascii=False, indent=1)):
            assert verdict_of(event_id, room_id, text, version, None) == ("intact", None)


@given(EVENTS, HASHED, VALUES, st.data())
def test_every_key_that_a_redaction_retains_affects_the_id(
    event: dict[str, Any], version: str, other: Any, data: Any
) -> None:
    event_id, room_id, full = add_hashes(event, version)
    retained = redaction.redact(full, redaction.ROOM_VERSION_RULES[version])
    paths: list[tuple[str | None, str]] = [(None, key) for key in retained.keys() - {"signatures", "content", "type"}]
    paths += [("content", key) for key in retained["content"]]
    parent, key = data.draw(st.sampled_from(sorted(paths, key=str)))
    changed = json.loads(json.dumps(full))
    (changed[parent] if parent else changed)[key] = [other, "other"]
    assert verdict_of(event_id, room_id, json.dumps(changed), version, None) == ("altered", "event_id")


@given(EVENTS, VERSIONS)
def test_a_redaction_differs_from_a_change(event: dict[str, Any], version: str) -> None:
    event_id, room_id, full = add_hashes({**event, "content": {**event["content"], "body": "said"}}, version)
    redacted = redaction.redact(full, redaction.ROOM_VERSION_RULES[version])
    assert redaction.redact(redacted, redaction.ROOM_VERSION_RULES[version]) == redacted
    retains_content = event["type"] == "m.room.create" and redaction.ROOM_VERSION_RULES[version] >= 11
    is_pruned = redacted.keys() != full.keys() - {"unsigned"} or not retains_content
    assert verdict_of(event_id, room_id, json.dumps(redacted), version, None) == (
        "pruned" if is_pruned else "intact",
        None,
    )

    if not retains_content:
        changed = {**full, "content": {**full["content"], "body": "something else"}}
        assert verdict_of(event_id, room_id, json.dumps(changed), version, None) == ("altered", "content")


def test_room_ids_are_hashes_from_version_12_on() -> None:
    event_id, room_id, full = add_hashes({"type": "m.room.create", "content": {"room_version": "12"}}, "12")
    assert verdict_of(event_id, room_id, json.dumps(full), "12", 4) == ("intact", None)
    assert verdict_of(event_id, ROOM, json.dumps(full), "12", 4) == ("altered", "room_id")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ("no_json", None)),
        ("", ("altered", "not_an_event")),
        ("[]", ("altered", "not_an_event")),
        ('{"type": 1, "content": {}}', ("altered", "not_an_event")),
        ('{"type": "m.room.message"}', ("altered", "not_an_event")),
        ('{"type": "m.room.message", "content": {"half": "\\ud800"}}', ("not_hashed", "not_canonical")),
        ('{"type": "m.room.message", "content": {"number": NaN}}', ("not_hashed", "not_canonical")),
        (f'{{"type": "m.room.message", "content": {{"number": 1{"0" * 5000}}}}}', ("not_hashed", "not_canonical")),
        (f'{{"type": "m.room.message", "content": {"[" * 90000}{"]" * 90000}}}', ("not_hashed", "not_canonical")),
        ('{"type": "m.room.message", "content": {"body": "a"}}', ("not_hashed", "no_content_hash")),
        ('{"type": "m.room.message", "content": {"body": "a"}, "hashes": 5}', ("not_hashed", "no_content_hash")),
        (
            '{"type": "m.room.message", "content": {"body": "a"}, "hashes": {"sha256": "ö"}}',
            ("not_hashed", "no_content_hash"),
        ),
        ('{"type": "m.room.message", "content": {"body": "a"}, "hashes": {"sha256": ""}}', ("altered", "content")),
        ('{"type": "m.room.message", "content": {}}', ("not_hashed", "no_content_hash")),
        ('{"type": "m.room.message", "content": {}, "hashes": {"sha256": ""}}', ("pruned", None)),
    ],
)
def test_unreadable_events_are_reported(text: str | None, expected: tuple[str, str | None]) -> None:
    assert verdict_of("$1:example.org", ROOM, text, "1", 1) == expected
    assert expected[0] in event_hashes.HASH_VERDICTS
    assert expected[1] is None or expected[1] in event_hashes.HASH_REASONS


def test_an_unknown_room_version_is_reported() -> None:
    text = json.dumps(add_hashes({"type": "m.room.message", "content": {"body": "a"}}, "1")[2])
    assert verdict_of("$1:example.org", ROOM, text, "org.matrix.unheard.of", 3) == ("not_hashed", "unknown_version")
    assert verdict_of("$1:example.org", ROOM, text, None, 3) == ("not_hashed", "unknown_version")
    assert verdict_of("$1:example.org", ROOM, text, None, None) == ("intact", None)
    event_id, room_id, full = add_hashes({"type": "m.room.message", "content": {"body": "a"}}, "3")
    assert verdict_of(event_id, room_id, json.dumps(full), None, 2) == ("intact", None)
