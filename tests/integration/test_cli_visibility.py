"""Commands print the visibility of events and the state at an event; the lake contains the published sample."""

from typing import Any

import pytest

from synapse_lakehouse.room_state.visibility_explanations import explain_rule
from tests.conftest import PublishedLake


@pytest.fixture(scope="module")
def message(published: PublishedLake) -> dict[str, Any]:
    """Return a message that only some members may see, from a room with the history visibility ``joined``."""
    (row,) = published.rows(
        "query",
        "select event_id, room_id, sender from gold.events join gold.event_visibility using (event_id, room_id)"
        " where not peeking and type = 'm.room.message' and rule in ('joined', 'not_joined')"
        " group by all having count(distinct rule) = 2 order by event_id limit 1",
    )  # fmt: skip
    return row


def test_who_can_see_prints_the_stored_outcomes(published: PublishedLake, message: dict[str, Any]) -> None:
    rows = published.rows("who-can-see", message["event_id"])
    expected = published.rows(
        "query",
        "select coalesce(user_id, 'any other user') as user, membership, outcome, rule from gold.event_visibility"
        f" where not peeking and event_id = '{message['event_id']}' order by user_id nulls last",
    )  # fmt: skip
    assert [{name: row[name] for name in expected[0]} for row in rows] == expected
    assert rows[-1]["user"] == "any other user"
    assert {row["outcome"] for row in rows} == {"full", "hidden"}
    assert {row["peeking_outcome"] for row in rows} <= {"full", "redacted", "hidden"}


def test_a_user_that_was_never_in_the_room_gets_an_answer(published: PublishedLake, message: dict[str, Any]) -> None:
    all_rows = published.rows("who-can-see", message["event_id"])
    (row,) = published.rows("who-can-see", message["event_id"], "--user", "@nobody.at.all:synapse.example")
    assert row == all_rows[-1] | {"user": "@nobody.at.all:synapse.example"}


def test_an_answer_is_explained_step_by_step(published: PublishedLake, message: dict[str, Any]) -> None:
    output = published.lakehouse("who-can-see", message["event_id"], "--explain").stdout
    assert f"{message['sender']} (join): full, by the rule joined" in output
    assert explain_rule("joined")[-1] in output
    assert explain_rule("not_joined")[-1] in output


def test_unknown_events_are_reported(published: PublishedLake, message: dict[str, Any]) -> None:
    for command in ("who-can-see", "state-at"):
        result = published.lakehouse(command, "$no:such'event")
        assert result.returncode == 1
        assert "Release 1 has no event $no:such'event" in result.stderr
    result = published.lakehouse("who-can-see", message["event_id"], "--user", "@them:elsewhere.org")
    assert result.returncode == 1
    assert "is not a user of synapse.example" in result.stderr
    result = published.lakehouse("visible", message["sender"], "--room", "!none")
    assert result.returncode == 1
    assert "no event of the room !none" in result.stderr


def test_visible_events_of_a_user(published: PublishedLake, message: dict[str, Any]) -> None:
    rooms = {row["room_id"]: row for row in published.rows("visible", message["sender"])}
    events = published.rows("visible", message["sender"], "--room", message["room_id"])
    room = rooms[message["room_id"]]
    assert room["shown"] + room["without_content"] + room["hidden"] == len(events)
    assert room["shown"] == sum(event["outcome"] == "full" for event in events)
    assert message["event_id"] in {event["event_id"] for event in events if event["outcome"] == "full"}


def test_retention_is_evaluated_at_the_given_time(published: PublishedLake) -> None:
    (row,) = published.rows(
        "query",
        "select event_id from silver.event_visibility_inputs where expires_at is not null and withheld is null"
        " and not soft_failed and unsent_type is null and not outlier order by event_id limit 1",
    )  # fmt: skip
    long_after = published.rows("who-can-see", row["event_id"], "--as-of", "2100-01-01")
    long_before = published.rows("who-can-see", row["event_id"], "--as-of", "2020-01-01")
    assert {item["rule"] for item in long_after} <= {"retention", "sender_ignored"}
    assert "retention" not in {item["rule"] for item in long_before}


def test_the_state_at_an_event(published: PublishedLake, message: dict[str, Any]) -> None:
    after = published.rows("state-at", message["event_id"])
    assert after == published.rows("state-at", message["event_id"], "--before")
    assert {"m.room.create", "m.room.member", "m.room.power_levels"} <= {row["type"] for row in after}
    members = published.rows("state-at", message["event_id"], "--type", "m.room.member")
    assert members == [row for row in after if row["type"] == "m.room.member"]
    assert {row["membership"] for row in members if row["state_key"] == message["sender"]} == {"join"}


def test_the_state_before_the_creation_is_empty(published: PublishedLake) -> None:
    (create,) = published.rows(
        "query",
        "select event_id from silver.event_visibility_inputs where type = 'm.room.create' and position >= 0"
        " order by event_id limit 1",
    )  # fmt: skip
    assert published.rows("state-at", create["event_id"], "--before") == []
    assert published.rows("state-at", create["event_id"], "--type", "m.room.topic") == []
    assert [row["type"] for row in published.rows("state-at", create["event_id"])] == ["m.room.create"]


def test_an_unknown_state_is_reported(published: PublishedLake) -> None:
    (outlier,) = published.rows(
        "query", "select event_id from gold.events where outlier order by event_id limit 1",
    )  # fmt: skip
    result = published.lakehouse("state-at", outlier["event_id"])
    assert result.returncode == 1
    assert "is unknown: the event is an outlier" in result.stderr


def _outcomes(published: PublishedLake, *arguments: str) -> dict[str, str]:
    return {row["event_id"]: row["outcome"] for row in published.rows("visible", *arguments)}


def test_a_former_member_reads_as_a_member(published: PublishedLake) -> None:
    (row,) = published.rows(
        "query",
        "select mine.user_id, mine.room_id from bronze.local_current_membership as mine"
        " join gold.events as last using (event_id)"
        " join gold.event_visibility as seen on seen.user_id = mine.user_id and seen.room_id = mine.room_id"
        " join gold.events as later on later.event_id = seen.event_id"
        " join bronze.room_memberships as remembered on remembered.event_id = mine.event_id"
        " where mine.membership = 'leave' and remembered.forgotten = 0"
        " and seen.rule = 'shared' and later.topological_ordering > last.topological_ordering"
        " group by all order by all limit 1",
    )  # fmt: skip
    arguments = row["user_id"], "--room", row["room_id"]
    member, peeking = _outcomes(published, *arguments, "--as-member"), _outcomes(published, *arguments, "--peeking")
    assert _outcomes(published, *arguments) == member != peeking
    (room,) = [room for room in published.rows("visible", row["user_id"]) if room["room_id"] == row["room_id"]]
    assert room["shown"] == list(member.values()).count("full")


@pytest.mark.parametrize(("membership", "forgotten"), [("ban", 0), ("leave", 1)])
def test_a_user_that_was_banned_or_forgot_only_peeks(published: PublishedLake, membership: str, forgotten: int) -> None:
    (row,) = published.rows(
        "query",
        "select mine.user_id, mine.room_id from bronze.local_current_membership as mine"
        " join gold.event_visibility as seen using (user_id, room_id)"
        " where mine.membership = '" + membership + "' and seen.rule = 'shared' and mine.room_id in ("
        "   select room_id from bronze.room_memberships where user_id = mine.user_id"
        f"  group by room_id having min(forgotten) = {forgotten})"
        " group by all order by all limit 1",
    )  # fmt: skip
    arguments = row["user_id"], "--room", row["room_id"]
    outcomes = _outcomes(published, *arguments)
    assert outcomes == _outcomes(published, *arguments, "--peeking")
    assert outcomes != _outcomes(published, *arguments, "--as-member")
