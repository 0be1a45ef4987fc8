"""What a running homeserver answers its clients, out of the lake: pages, syncs and states, event by event."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

from sample.client import ADMIN, V3, Client, Json, q
from sample.homeserver import Synapse, homeserver
from sample.traffic import forks, moderation, visibility
from sample.traffic.stage import ADMINISTRATOR, CAST, Stage
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import environment, lake_maker, lakehouse
from tests.support.dbt import dbt_session

pytestmark = pytest.mark.heavy

GOLD = [
    "gold.current_rooms", "gold.event_visibility", "gold.events", "gold.recent_events", "gold.room_last_change",
    "gold.room_timeline", "gold.state_at_event", "gold.user_event_feed", "gold.user_last_membership_change",
    "bronze.instance_map",
]  # fmt: skip
RECENT, ALL, FEW = 20, 1000, 25
Pair = tuple[str, str]


@dataclass
class Answers:
    """What Synapse said; ``pages``, ``first``, ``news`` and ``farewells`` (where somebody left) by user and room."""

    pages: dict[Pair, list[str]] = field(default_factory=dict)
    first: dict[Pair, list[str]] = field(default_factory=dict)
    news: dict[Pair, list[str]] = field(default_factory=dict)
    farewells: dict[Pair, list[str]] = field(default_factory=dict)
    invites: set[Pair] = field(default_factory=set)
    clients: dict[str, Client] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    since: dict[str, str] = field(default_factory=dict)
    extremities: dict[str, set[str]] = field(default_factory=dict)
    purged: str = ""
    state_now: dict[str, set[str]] = field(default_factory=dict)
    state_at: dict[str, set[str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Synapse, Answers]]:
    """A homeserver with rooms of every visibility, and others that forked since; and its answers to everybody there."""
    with homeserver(tmp_path_factory.mktemp("answers")) as hs:
        users = {name: hs.register(name, displayname=display) for name, display in CAST.items()}
        admin = hs.register(ADMINISTRATOR, admin=True)
        stage = Stage(hs, users | {ADMINISTRATOR: admin}, seed=5)
        stage.play(visibility.all_visibilities)
        stage.play(visibility.changing_visibility)
        purged = stage.room("purged", "alice")
        moderation.purge_history(admin, purged, stage.chat(purged, ["alice"], 10)[5])
        since = {user.user_id: _sync(user, 1)["next_batch"] for user in users.values()}
        for room in stage.found["visibility"] + stage.found["visibility-changes"]:
            stage.chat(room, ["alice", "bob", "mallory"], 5)
            stage.users["alice"].set_state(room, "m.room.topic", {"topic": stage.words()})
        departed = _depart(stage)
        stage.users["alice"].invite(stage.found["visibility"][0], stage.users["zoe"], stage.users["yusuf"])
        stage.play(forks.forks)
        answers = _ask(list(users.values()), admin, since)
        answers.purged = answers.pages[users["alice"].user_id, purged][-1]
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
    answers = Answers(
        clients={user.user_id: user for user in users},
        tokens=since,
        since={user: token.partition("_")[0] for user, token in since.items()},
    )
    for user in users:
        joined = _sync(user, RECENT)["rooms"].get("join", {})
        for room, entry in joined.items():
            key = user.user_id, room
            answers.first[key] = _ids(entry["timeline"]["events"])
            answers.pages[key] = list(_scroll_back(user, room))
            if room not in answers.state_now:
                now = admin.call("GET", f"{ADMIN}/v1/rooms/{q(room)}/state")
                answers.state_now[room] = set(_ids(now["state"]))
                ends = admin.call("GET", f"{ADMIN}/v1/rooms/{q(room)}/forward_extremities")
                answers.extremities[room] = set(_ids(ends["results"]))
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
def own(
    said: tuple[Synapse, Answers], server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """The lake in which a run published that homeserver."""
    hs, _ = said
    with lake_maker(server, settings, tmp_path_factory.mktemp("lakes")) as make:
        own = make(synapse_dsn=hs.dsn, synapse_server_name=hs.server_name, synapse_config=hs.config_path.resolve())
        done = lakehouse(own, "run")
        assert done.returncode == 0, done.stdout + done.stderr
        yield own


@pytest.fixture(scope="module")
def lake(own: Settings) -> Iterator[DuckDBPyConnection]:
    """What was published."""
    with duckdb_reader.open_duckdb(own) as connection:
        duckdb_reader.create_views(connection, own, duckdb_reader.get_release(connection, own), GOLD)
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


def _from(answers: Answers, user: str, position: int) -> dict[str, list[str]]:
    """Events that a sync from a position on has of the rooms where ``user`` is."""
    token = f"s{position}_{answers.tokens[user].partition('_')[2]}"
    rooms = _sync(answers.clients[user], ALL, token)["rooms"].get("join", {})
    return {room: _ids(entry["timeline"]["events"]) for room, entry in rooms.items()}


def test_a_feed_that_is_cut_off_has_what_a_sync_from_there_has(
    said: tuple[Synapse, Answers],
    own: Settings,
    lake: DuckDBPyConnection,
    shown: dict[Pair, list[str]],
    tmp_path: Path,
) -> None:
    hs, answers = said
    told = json.dumps({"server_name": hs.server_name, "feed_length": FEW})
    with dbt_session(environment(own), tmp_path) as session:
        models = ["feed_memberships", "user_event_feed", "user_feed_starts"]
        done = session.dbt("run", "--select", *models, "--vars", told, branch="short")
        assert done["success"], done
    with duckdb_reader.open_duckdb(own) as connection:
        duckdb_reader.create_views(
            connection, own, None, ["gold.user_event_feed", "gold.user_feed_starts"], branch="short"
        )
        feed = _by_pair(
            connection.sql(
                "select user_id, room_id, event_id from gold.user_event_feed order by stream_ordering"
            ).fetchall()
        )
        starts = dict(
            connection.sql("select user_id, resync_from from gold.user_feed_starts where resync_from > 0").fetchall()
        )
    current = {event for (event,) in lake.sql("select event_id from gold.events where is_current_state").fetchall()}
    stays = lake.sql("select user_id, room_id, since_stream_ordering from gold.current_rooms").fetchall()
    synced = {user: _from(answers, user, start) for user, start in starts.items() if user in answers.tokens}
    stayed = [(user, room) for user, room, since in stays if user in synced and since <= starts[user]]
    wanted = _without_hidden_state({(user, room): synced[user].get(room, []) for user, room in stayed}, shown, current)
    assert len(synced) > 5
    assert sum(map(len, wanted.values())) > 50
    assert {pair: feed.get(pair, []) for pair in stayed} == wanted


def test_a_room_has_news_until_its_last_change(
    said: tuple[Synapse, Answers], lake: DuckDBPyConnection, shown: dict[Pair, list[str]]
) -> None:
    _, answers = said
    changes = lake.sql("""
        select room_id, any_value(user_id), any_value(event_id), any_value(stream_ordering)
        from gold.room_last_change join gold.current_rooms using (room_id)
        where since_stream_ordering < stream_ordering group by room_id
    """).fetchall()
    told = [change for change in changes if change[1] in answers.tokens and change[2] in shown[change[1], change[0]]]
    assert len(told) > 10
    for room, user, event, position in told:
        assert _from(answers, user, position - 1)[room] == [event]
        assert _from(answers, user, position).get(room, []) == []


def test_memberships_changed_last_where_synapse_says(said: tuple[Synapse, Answers], lake: DuckDBPyConnection) -> None:
    hs, _ = said
    latest = """
        select distinct on (user_id) user_id, room_id, membership_event_id, membership, event_stream_ordering
        from sliding_sync_membership_snapshots order by user_id, event_stream_ordering desc
    """
    with psycopg.connect(hs.dsn) as source:
        snapshots = {user: said for user, *said in source.execute(latest).fetchall()}
    changes = {
        user: said
        for user, *said in lake.sql(
            "select user_id, room_id, event_id, membership, stream_ordering from gold.user_last_membership_change"
            " where is_local"
        ).fetchall()
    }
    assert changes.keys() == snapshots.keys()
    # A membership that raced a ban and lost was one for a while; Synapse keeps the winner.
    racing = {user for user in changes if user[1:].partition(":")[0] in forks.CROWD}
    assert all(changes[user][-1] >= snapshots[user][-1] for user in racing)
    calm = changes.keys() - racing
    assert len(calm) > 5
    assert {user: changes[user] for user in calm} == {user: snapshots[user] for user in calm}


def test_timelines_say_where_rooms_go_on_and_where_their_history_ends(
    said: tuple[Synapse, Answers], lake: DuckDBPyConnection
) -> None:
    _, answers = said
    ends: dict[str, set[str]] = defaultdict(set)
    for room, event in lake.sql(
        "select room_id, event_id from gold.room_timeline where is_forward_extremity"
    ).fetchall():
        ends[room].add(event)
    assert {room: ends[room] for room in answers.extremities} == answers.extremities
    assert len(answers.extremities) > 10
    found = lake.sql("select event_id from gold.room_timeline where history_ends_here").fetchall()
    assert found == [(answers.purged,)]


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
