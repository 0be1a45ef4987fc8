"""What a running homeserver answers its clients, out of the lake: pages, syncs and states, event by event."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

from sample.client import ADMIN, V3, Client, Json, q
from sample.homeserver import Synapse, homeserver
from sample.traffic import forks, visibility
from sample.traffic.stage import CAST, Stage
from synapse_lakehouse.embedded.postgres import Server
from synapse_lakehouse.lake import duck
from synapse_lakehouse.settings import Settings
from tests.conftest import lake_maker, lakehouse

pytestmark = pytest.mark.heavy

GOLD = [
    "gold.current_rooms", "gold.event_visibility", "gold.events", "gold.recent_events", "gold.room_timeline",
    "gold.state_at_event", "gold.user_event_feed", "bronze.instance_map",
]  # fmt: skip
RECENT, ALL = 20, 1000
Pair = tuple[str, str]


@dataclass
class Answers:
    """What Synapse said; ``pages``, ``first``, ``news`` and ``farewells`` (where somebody left) by user and room."""

    pages: dict[Pair, list[str]] = field(default_factory=dict)
    first: dict[Pair, list[str]] = field(default_factory=dict)
    news: dict[Pair, list[str]] = field(default_factory=dict)
    farewells: dict[Pair, list[str]] = field(default_factory=dict)
    invites: set[Pair] = field(default_factory=set)
    since: dict[str, str] = field(default_factory=dict)
    state_now: dict[str, set[str]] = field(default_factory=dict)
    state_at: dict[str, set[str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Synapse, Answers]]:
    """A homeserver with rooms of every visibility, and others that forked since; and its answers to everybody there."""
    with homeserver(tmp_path_factory.mktemp("answers")) as hs:
        stage = Stage(hs, {name: hs.register(name, displayname=display) for name, display in CAST.items()}, seed=5)
        stage.play(visibility.all_visibilities)
        stage.play(visibility.changing_visibility)
        since = {user.user_id: _sync(user, 1)["next_batch"] for user in stage.users.values()}
        for room in stage.found["visibility"] + stage.found["visibility-changes"]:
            stage.chat(room, ["alice", "bob", "mallory"], 5)
            stage.users["alice"].set_state(room, "m.room.topic", {"topic": stage.words()})
        departed = _depart(stage)
        stage.users["alice"].invite(stage.found["visibility"][0], stage.users["zoe"], stage.users["yusuf"])
        stage.play(forks.forks)
        answers = _ask(list(stage.users.values()), hs.register("ada", admin=True), since)
        answers.farewells = {pair: answers.farewells[pair] for pair in departed}
        yield hs, answers


def _depart(stage: Stage) -> set[Pair]:
    """Somebody leaves, somebody leaves and forgets, somebody is banned, somebody is kicked and invited again, each in a
    room of another visibility, where others go on talking; who left which."""
    alice, bob, mallory, erin = (stage.users[name] for name in ("alice", "bob", "mallory", "erin"))
    everybody, shared, invited, joined, *_ = stage.found["visibility"]
    bob.leave(everybody)
    erin.leave(shared)
    erin.forget(shared)
    alice.moderate("ban", invited, mallory)
    alice.moderate("kick", joined, bob)
    for room in (everybody, shared, invited, joined):
        stage.chat(room, ["alice"], 3)
    alice.invite(joined, bob)
    return {
        (bob.user_id, everybody), (erin.user_id, shared), (mallory.user_id, invited), (bob.user_id, joined)
    }  # fmt: skip


def _ask(users: list[Client], admin: Client, since: dict[str, str]) -> Answers:
    answers = Answers(since={user: token.partition("_")[0] for user, token in since.items()})
    for user in users:
        joined = _sync(user, RECENT)["rooms"].get("join", {})
        for room, entry in joined.items():
            key = user.user_id, room
            answers.first[key] = _ids(entry["timeline"]["events"])
            answers.pages[key] = list(_scroll_back(user, room))
            if room not in answers.state_now:
                now = admin.call("GET", f"{ADMIN}/v1/rooms/{q(room)}/state")
                answers.state_now[room] = set(_ids(now["state"]))
                for event_id in answers.pages[key][::7]:
                    path = f"{V3}/rooms/{q(room)}/context/{q(event_id)}"
                    answers.state_at[event_id] = set(_ids(user.call("GET", path, params={"limit": "0"})["state"]))
        rooms = _sync(user, ALL, since[user.user_id])["rooms"]
        for room, entry in rooms.get("join", {}).items():
            answers.news[user.user_id, room] = _ids(entry["timeline"]["events"])
        for room, entry in rooms.get("leave", {}).items():
            answers.farewells[user.user_id, room] = _ids(entry["timeline"]["events"])
        answers.invites |= {(user.user_id, room) for room in rooms.get("invite", {})}
    return answers


def _sync(user: Client, limit: int, since: str = "") -> Json:
    query = {"timeout": "0", "filter": f'{{"room": {{"timeline": {{"limit": {limit}}}}}}}'}
    return {"rooms": {}} | user.call("GET", f"{V3}/sync", params=query | ({"since": since} if since else {}))


def _scroll_back(user: Client, room: str) -> Iterator[str]:
    query = {"dir": "b", "limit": "50"}
    while True:
        page = user.call("GET", f"{V3}/rooms/{q(room)}/messages", params=query)
        yield from _ids(page["chunk"])
        if "end" not in page:
            return
        query["from"] = page["end"]


def _ids(events: list[Json]) -> list[str]:
    return [event["event_id"] for event in events]


@pytest.fixture(scope="module")
def lake(
    said: tuple[Synapse, Answers], server: Server, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DuckDBPyConnection]:
    """What a run published of that homeserver."""
    hs, _ = said
    with lake_maker(server, settings, tmp_path_factory.mktemp("lakes")) as make:
        own = make(synapse_dsn=hs.dsn, synapse_server_name=hs.server_name, synapse_config=hs.config_path.resolve())
        done = lakehouse(own, "run")
        assert done.returncode == 0, done.stdout + done.stderr
        with duck.connect(own) as connection:
            duck.bind(connection, own, duck.release(connection, own), GOLD)
            yield connection


@pytest.fixture(scope="module")
def shown(lake: DuckDBPyConnection) -> dict[Pair, list[str]]:
    """What each user may see of each room that the user is in, the latest first, as the guide says to ask for it."""
    found = lake.sql("""
        select seen.user_id, seen.room_id, timeline.event_id
        from gold.room_timeline as timeline
        join gold.event_visibility as seen using (room_id, event_id)
        join gold.current_rooms as rooms on seen.user_id = rooms.user_id and seen.room_id = rooms.room_id
        where not seen.peeking and seen.outcome <> 'hidden'
        order by timeline.topological_ordering desc, timeline.stream_ordering desc
    """).fetchall()
    return _by_pair(found)


def _by_pair(rows: list[tuple[str, str, str]]) -> dict[Pair, list[str]]:
    found: dict[Pair, list[str]] = defaultdict(list)
    for user, room, event in rows:
        found[user, room].append(event)
    return dict(found)


def _without_hidden_state(
    answered: dict[Pair, list[str]], shown: dict[Pair, list[str]], current: set[str]
) -> dict[Pair, list[str]]:
    """A sync has every piece of the present state in its timeline, also what its reader may not see there."""
    return {
        pair: [event for event in events if event in set(shown.get(pair, ())) or event not in current]
        for pair, events in answered.items()
    }


def test_a_room_is_scrolled_back_as_its_clients_do(said: tuple[Synapse, Answers], shown: dict[Pair, list[str]]) -> None:
    _, answers = said
    assert len(answers.pages) > 100
    assert sum(map(len, answers.pages.values())) > 5000
    assert shown == answers.pages


def test_a_first_sync_has_the_recent_events(
    said: tuple[Synapse, Answers], lake: DuckDBPyConnection, shown: dict[Pair, list[str]]
) -> None:
    _, answers = said
    recent = _by_pair(
        lake.sql("select user_id, room_id, event_id from gold.recent_events order by event_rank").fetchall()
    )
    current = {event for (event,) in lake.sql("select event_id from gold.events where is_current_state").fetchall()}
    wanted = _without_hidden_state(answers.first, shown, current)
    assert wanted
    # Of what a sync spends on state that may not be seen, the lake has older events instead.
    assert {pair: recent.get(pair, [])[: len(events)][::-1] for pair, events in wanted.items()} == wanted
    assert all(len(recent[pair]) == min(RECENT, len(shown[pair])) for pair in recent)


def test_what_came_since_a_token_is_in_the_feed(
    said: tuple[Synapse, Answers], lake: DuckDBPyConnection, shown: dict[Pair, list[str]]
) -> None:
    _, answers = said
    current = {event for (event,) in lake.sql("select event_id from gold.events where is_current_state").fetchall()}
    stays = lake.sql("select user_id, room_id, since_stream_ordering from gold.current_rooms").fetchall()
    feed, moved = _since(lake, answers)
    stayed = [(user, room) for user, room, since in stays if since <= _position(answers.since[user])[0]]
    wanted = _without_hidden_state({pair: answers.news.get(pair, []) for pair in stayed}, shown, current)
    assert sum(map(len, wanted.values())) > 200
    assert {pair: feed.get(pair, []) for pair in stayed} == wanted
    assert answers.invites
    assert answers.invites <= moved


def test_what_came_before_a_leave_is_in_the_feed(said: tuple[Synapse, Answers], lake: DuckDBPyConnection) -> None:
    _, answers = said
    current = {event for (event,) in lake.sql("select event_id from gold.events where is_current_state").fetchall()}
    users, rooms = zip(*answers.farewells, strict=True)
    lake.register("left_rooms", pa.table({"user_id": users, "room_id": rooms}))
    visible = _by_pair(
        lake.sql(
            "select user_id, room_id, event_id from gold.event_visibility join left_rooms using (user_id, room_id)"
            " where not peeking and outcome <> 'hidden'"
        ).fetchall()
    )
    feed, _ = _since(lake, answers)
    wanted = _without_hidden_state(answers.farewells, visible, current)
    assert all(len(events) > 1 for events in wanted.values())
    # An invite after the leave is news as well, but of another kind.
    told = {
        pair: [event for event in feed.get(pair, []) if event not in current or event in wanted[pair]]
        for pair in wanted
    }
    assert told == wanted


def _since(lake: DuckDBPyConnection, answers: Answers) -> tuple[dict[Pair, list[str]], set[Pair]]:
    """What each user's feed has of each room since the user's token, and where the user's membership changed."""
    numbers = dict(lake.sql("select instance_name, instance_id from bronze.instance_map").fetchall())
    feed: dict[Pair, list[str]] = defaultdict(list)
    moved: set[Pair] = set()
    for user, room, event, position, instance, is_move in lake.sql(
        "select user_id, room_id, event_id, stream_ordering, instance_name, is_membership_change"
        " from gold.user_event_feed order by stream_ordering"
    ).fetchall():
        least, beyond = _position(answers.since[user])
        if position > beyond.get(numbers.get(instance, -1), least):
            feed[user, room].append(event)
            moved |= {(user, room)} if is_move else set()
    return feed, moved


def _position(token: str) -> tuple[int, dict[int, int]]:
    """``s58`` or ``m58~2.60~3.75``: the least position, and those of writers that are further."""
    least, *further = token[1:].split("~")
    return int(least), {int(one.split(".")[0]): int(one.split(".")[1]) for one in further}


def test_states_are_those_of_the_rooms_now_and_at_events(
    said: tuple[Synapse, Answers], lake: DuckDBPyConnection
) -> None:
    _, answers = said
    now: dict[str, set[str]] = defaultdict(set)
    for room, event in lake.sql("select room_id, event_id from gold.events where is_current_state").fetchall():
        now[room].add(event)
    assert {room: now[room] for room in answers.state_now} == answers.state_now
    assert len(answers.state_at) > 100
    lake.register("asked", pa.table({"event_id": list(answers.state_at)}))
    after: dict[str, set[str]] = defaultdict(set)
    for event, state in lake.sql(
        "select event_id, after_event_id from gold.state_at_event join asked using (event_id)"
        " where after_event_id is not null"
    ).fetchall():
        after[event].add(state)
    assert dict(after) == answers.state_at
