"""A new homeserver with two event persisters is copied during conversations and after them."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sample.homeserver import Synapse, homeserver
from sample.settle import settle
from synapse_lakehouse.config.settings import Settings
from tests.conftest import lakehouse
from tests.support.dataframe_compare import compare_with_source

pytestmark = pytest.mark.heavy

PAUSE_SECONDS = 0.1
PRESENCE_SECONDS = 70.0
"""Seconds after a user's last request in which Synapse still writes that the user is offline."""


def test_the_copy_of_a_live_homeserver_equals_it(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    with homeserver(tmp_path / "synapse") as hs:
        settings = new_lake(
            synapse_dsn=hs.dsn, synapse_server_name=hs.server_name, synapse_config=hs.config_path.resolve()
        )
        stop = threading.Event()
        talk = threading.Thread(target=_talk, args=(hs, stop))
        talk.start()
        try:
            during = lakehouse(settings, "run")
        finally:
            stop.set()
            talk.join()
        settle(hs.dsn, quiet_seconds=PRESENCE_SECONDS)
        after = lakehouse(settings, "run")
        assert during.returncode == 0, during.stdout + during.stderr
        assert after.returncode == 0, after.stdout + after.stderr
        assert compare_with_source(settings) == {}


def _talk(hs: Synapse, stop: threading.Event) -> None:
    """Send messages through every process in turn until ``stop`` is set."""
    alice = hs.register("alice", admin=True)
    rooms = [alice.create_room(preset="public_chat") for _ in range(6)]
    turns = itertools.cycle(itertools.product(rooms, hs.urls))
    # The pause leaves CPU time for the copy.
    while not stop.wait(PAUSE_SECONDS):
        room, process = next(turns)
        alice.say(room, "and another thing", via=process)
