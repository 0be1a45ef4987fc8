"""Replication meets the requirements of Synapse's documents, and a page names the test of each requirement."""

import re

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.replication.protocol import commands as c
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.server.server import ServerTiming
from synapse_lakehouse.replication.tap.follower import ClientTiming
from tests.replication.conversation import Conversation, run_conversations
from tests.replication.database import CATALOGUE, Database

PAGE = PROJECT_FOLDER / "docs" / "reference" / "replication-conformance.md"

SIDES = {
    "S": {"SERVER", "RDATA", "POSITION"},
    "C": {
        "NAME", "REPLICATE", "USER_SYNC", "CLEAR_USER_SYNC", "FEDERATION_ACK", "REMOVE_PUSHER", "INVALIDATE_CACHE",
    },
    "SC": {"ERROR", "PING", "REMOTE_SERVER_UP", "SYNC"},
}  # fmt: skip
"""Commands by the side that sends them, as the documents list them."""


def test_each_requirement_names_tests_that_exist() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    for requirement, _, tests in rows:
        references = re.findall(r"`([\w/]+\.py)::(\w+)`", tests)
        assert references, requirement
        for path, name in references:
            assert f"def {name}(" in (PROJECT_FOLDER / "tests" / path).read_text(), f"{path}::{name}"


def test_all_streams_are_followed_from_now_on(homeserver: Database) -> None:
    homeserver.add_event(2, "ep1")
    homeserver.complete_events(2)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE ALL NOW")
        lines = await conversation.read_until(lambda line: line.startswith("POSITION un_partial_stated_room "))
        assert {line.split()[1] for line in lines[1:]} == {stream.name for stream in CATALOGUE.streams}
        assert "POSITION events 2" in lines
        homeserver.add_event(3, "ep2")
        homeserver.complete_events(3)
        assert (await conversation.receive() or "").startswith("RDATA events 3 ")

    run_conversations(homeserver, Dialect.TOKENS, follow)


def test_the_documented_intervals_are_the_defaults() -> None:
    for timing in (ServerTiming(), ClientTiming()):
        assert (timing.ping, timing.silence) == (5, 15)


@pytest.mark.parametrize("dialect", [Dialect.TOKENS, Dialect.INSTANCES])
def test_a_client_may_report_an_error_and_the_connection_ends(homeserver: Database, dialect: Dialect) -> None:
    async def report(conversation: Conversation) -> None:
        conversation.send("SYNC something", "ERROR something went wrong")
        assert [line.split()[0] for line in await conversation.read_all()] == ["SERVER"]

    run_conversations(homeserver, dialect, report)


def test_commands_are_sent_by_the_documented_side_only() -> None:
    only_servers = {word for word, kind in c.WORDS.items() if kind in c.SERVER_COMMANDS}
    only_clients = {word for word, kind in c.WORDS.items() if kind in c.CLIENT_COMMANDS}
    assert (only_servers, only_clients) == (SIDES["S"], SIDES["C"])
    # Synapse added two commands after the documents were written.
    assert c.WORDS.keys() - only_servers - only_clients == SIDES["SC"] | {"LOCK_RELEASED", "NEW_ACTIVE_TASK"}
