"""The lake agrees with a million answers of a real Synapse, on a database that two federating homeservers filled.

The lake copies the database in two runs, so the answers test incremental models. The state before events is compared
with the responses to the other homeserver, too.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import httpx
import pytest
import yaml

from sample import visibility_answers
from sample.client import Client, MatrixError
from sample.homeserver import Synapse
from sample.settle import settle
from synapse_lakehouse.cli.events.visibility import set_retention_time
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres import embedded_postgres
from tests.conftest import lakehouse
from tests.integration.federated_load import LOCAL, Load, federation
from tests.visibility import holding, over_federation

pytestmark = pytest.mark.heavy

SECONDS = 120
PEOPLE = 420
"""Users that join all rooms. Each event has an answer for each user."""
MIN_ANSWERS = 1_000_000


@dataclass
class Crowd:
    """Many users of a homeserver that send messages and change memberships, in rooms of each history visibility."""

    local: Synapse
    seed: int
    refused: int = 0
    people: list[Client] = field(default_factory=list)
    rooms: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.people = [self.local.register(f"crowd{number}") for number in range(PEOPLE)]
        for visibility in ("shared", "joined", "invited", "world_readable"):
            event = {"type": "m.room.history_visibility", "content": {"history_visibility": visibility}}
            room = self.people[0].create_room(preset="public_chat", initial_state=[event])
            self.rooms.append(room)
            for person in self.people[1:]:
                person.join(room)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let four users at a time act until the context ends."""
        stop = threading.Event()
        threads = [threading.Thread(target=self._act, args=(number, stop)) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _act(self, number: int, stop: threading.Event) -> None:
        chance = random.Random(f"{self.seed}:crowd:{number}:{time.monotonic()}")
        actions = [self._say] * 12 + [self._join, self._leave, self._invite, self._moderate, self._change_visibility]
        while not stop.is_set():
            try:
                chance.choice(actions)(chance.choice(self.rooms), chance.choice(self.people), chance)
            except (MatrixError, httpx.TransportError):
                # Only members of a room can send messages.
                self.refused += 1

    def _say(self, room: str, person: Client, chance: random.Random) -> None:
        person.say(room, f"words {chance.random()}", via=chance.choice(sorted(self.local.urls)))

    def _join(self, room: str, person: Client, _: random.Random) -> None:
        person.join(room)

    def _leave(self, room: str, person: Client, _: random.Random) -> None:
        person.leave(room)

    def _invite(self, room: str, person: Client, chance: random.Random) -> None:
        person.invite(room, chance.choice(self.people))

    def _moderate(self, room: str, person: Client, chance: random.Random) -> None:
        self.people[0].moderate(chance.choice(["kick", "ban", "unban"]), room, person)

    def _change_visibility(self, room: str, _: Client, chance: random.Random) -> None:
        visibility = chance.choice(["shared", "joined", "invited", "world_readable", "nonsense"])
        self.people[0].set_state(room, "m.room.history_visibility", {"history_visibility": visibility})


def test_visibility_of_a_federated_database_equals_synapse(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    seed = int(time.time())
    print(f"seed {seed}")
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        source = server.dsn("here")
        with federation(server, tmp_path) as (local, remote):
            config = yaml.safe_load(local.config_path.read_text())
            lake = new_lake(synapse_dsn=source, synapse_server_name=LOCAL, synapse_config=local.config_path)
            load, crowd = Load(local, remote, seed), Crowd(local, seed)
            for _ in range(2):
                load.quiet.clear()
                with load.running(), crowd.running():
                    time.sleep(SECONDS)
                assert load.broken == []
                settle(source)
                result = lakehouse(lake, "run")
                assert result.returncode == 0, result.stdout + result.stderr
            print(f"done {load.done}, refused {load.refused} and {crowd.refused}")
            states = over_federation.read_states(local, remote, load.shared, limit=400)

        # Synapse changes its database while it computes answers.
        server.tool("createdb", "--template", "here", "asked")
        answers_file = tmp_path / "answers.parquet"
        sections = {key: config[key] for key in ("server_name", "retention") if key in config}
        visibility_answers.record(server.dsn("asked"), answers_file, int(time.time() * 1000), sections)

    recorded = visibility_answers.load(answers_file)
    recorded_answers = recorded.answers
    print(
        duckdb.sql("select outcome, count(*) from recorded_answers group by all order by all").fetchall(),
        recorded.errors,
    )
    assert len(recorded_answers) >= MIN_ANSWERS
    with duckdb_reader.open_duckdb(lake) as connection:
        release = duckdb_reader.get_release(connection, lake)
        holding.bind_release(connection, lake, release)
        names = ["gold.state_at_event", "gold.state_integrity", *over_federation.UNKNOWN_REPLACEMENT_TABLES]
        duckdb_reader.create_views(connection, lake, release, names)
        set_retention_time(connection, recorded.about["as_of"])
        assert visibility_answers.differences(connection, recorded) == []
        assert len(states) > 100
        assert over_federation.differences(connection, states) == []
        damage = "select check_name, subject, expected, found from gold.state_integrity where severity <> 'info'"
        assert connection.execute(damage).fetchall() == [], "the lake reports damage of a healthy homeserver"
        print(
            connection.execute("select rule, count(*) from gold.event_visibility group by all order by all").fetchall()
        )
