"""Pages, syncs and states of the lake equal the responses of a running homeserver to its clients."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

from sample.homeserver import Synapse, homeserver
from sample.traffic import forks, moderation, visibility
from sample.traffic.stage import ADMINISTRATOR, CAST, Stage
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import environment, lake_maker, lakehouse
from tests.support.branch_views import create_branch_views
from tests.support.dbt import dbt_session
from tests.support.synapse_answers import (
    RECENT,
    Answers,
    Pair,
    ask_synapse,
    depart,
    group_by_pair,
    parse_token,
    sync,
    sync_from,
    without_hidden_state,
)

pytestmark = pytest.mark.heavy
GOLD = [
    "gold.current_rooms", "gold.event_visibility", "gold.events", "gold.recent_events", "gold.room_last_change",
    "gold.room_timeline", "gold.state_at_event", "gold.user_event_feed", "gold.user_last_membership_change",
    "bronze.instance_map",
]  # fmt: skip
FEED_LENGTH = 25
"""Number of events of the shortened feed."""


@pytest.fixture(scope="module")
def synapse_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Synapse, Answers]]:
    """Yield a homeserver with rooms of every history visibility and forked rooms, and its responses to all users."""
    with homeserver(tmp_path_factory.mktemp("answers")) as hs:
        users = {name: hs.register(name, displayname=display) for name, display in CAST.items()}
        admin = hs.register(ADMINISTRATOR, admin=True)
        stage = Stage(hs, users | {ADMINISTRATOR: admin}, seed=5)
        stage.play(visibility.all_visibilities)
        stage.play(visibility.changing_visibility)
        purged = stage.room("purged", "alice")
        moderation.purge_history(admin, purged, stage.chat(purged, ["alice"], 10)[5])
        since = {user.user_id: sync(user, 1)["next_batch"] for user in users.values()}
        for room in stage.found["visibility"] + stage.found["visibility-changes"]:
            stage.chat(room, ["alice", "bob", "mallory"], 5)
            stage.users["alice"].set_state(room, "m.room.topic", {"topic": stage.words()})
        departed = depart(stage)
        stage.users["alice"].invite(stage.found["visibility"][0], stage.users["zoe"], stage.users["yusuf"])
        stage.play(forks.forks)
        answers = ask_synapse(list(users.values()), admin, since)
        answers.purged = answers.pages[users["alice"].user_id, purged][-1]
        answers.left_rooms = {pair: answers.left_rooms[pair] for pair in departed}
        yield hs, answers


@pytest.fixture(scope="module")
def lake_settings(
    synapse_answers: tuple[Synapse, Answers],
    server: EmbeddedServer,
    settings: Settings,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Settings]:
    """Yield the settings of a lake that a run published from this homeserver."""
    hs, _ = synapse_answers
    with lake_maker(server, settings, tmp_path_factory.mktemp("lakes")) as make:
        lake_settings = make(
            synapse_dsn=hs.dsn, synapse_server_name=hs.server_name, synapse_config=hs.config_path.resolve()
        )
        result = lakehouse(lake_settings, "run")
        assert result.returncode == 0, result.stdout + result.stderr
        yield lake_settings


@pytest.fixture(scope="module")
def lake(lake_settings: Settings) -> Iterator[DuckDBPyConnection]:
    """Yield a DuckDB connection with views of the release."""
    with duckdb_reader.open_duckdb(lake_settings) as connection:
        duckdb_reader.create_views(
            connection, lake_settings, duckdb_reader.get_release(connection, lake_settings), GOLD
        )
        yield connection


@pytest.fixture(scope="module")
def visible_events(lake: DuckDBPyConnection) -> dict[Pair, list[str]]:
    """Return the visible events of each user in each joined room, newest first, by the query of the how-to guide."""
    actual = lake.sql("""
        select seen.user_id, seen.room_id, timeline.event_id
        from gold.room_timeline as timeline
        join gold.event_visibility as seen using (room_id, event_id)
        join gold.current_rooms as rooms on seen.user_id = rooms.user_id and seen.room_id = rooms.room_id
        where not seen.peeking and seen.outcome <> 'hidden'
        order by timeline.topological_ordering desc, timeline.stream_ordering desc
    """).fetchall()
    return group_by_pair(actual)


def test_pages_equal_the_visible_events(
    synapse_answers: tuple[Synapse, Answers], visible_events: dict[Pair, list[str]]
) -> None:
    _, answers = synapse_answers
    assert len(answers.pages) > 100
    assert sum(map(len, answers.pages.values())) > 5000
    assert visible_events == answers.pages


def test_a_first_sync_has_the_recent_events(
    synapse_answers: tuple[Synapse, Answers], lake: DuckDBPyConnection, visible_events: dict[Pair, list[str]]
) -> None:
    _, answers = synapse_answers
    recent = group_by_pair(
        lake.sql("select user_id, room_id, event_id from gold.recent_events order by event_rank").fetchall()
    )
    current = {event for (event,) in lake.sql("select event_id from gold.events where is_current_state").fetchall()}
    expected = without_hidden_state(answers.first, visible_events, current)
    assert expected
    # Where a sync contains invisible state, the lake has older events.
    assert {pair: recent.get(pair, [])[: len(events)][::-1] for pair, events in expected.items()} == expected
    assert all(len(recent[pair]) == min(RECENT, len(visible_events[pair])) for pair in recent)


def test_the_feed_has_events_since_a_token(
    synapse_answers: tuple[Synapse, Answers], lake: DuckDBPyConnection, visible_events: dict[Pair, list[str]]
) -> None:
    _, answers = synapse_answers
    current = {event for (event,) in lake.sql("select event_id from gold.events where is_current_state").fetchall()}
    stays = lake.sql("select user_id, room_id, since_stream_ordering from gold.current_rooms").fetchall()
    feed, changed_memberships = _read_feed(lake, answers)
    in_room = [(user, room) for user, room, since in stays if since <= parse_token(answers.since[user])[0]]
    expected = without_hidden_state({pair: answers.news.get(pair, []) for pair in in_room}, visible_events, current)
    assert sum(map(len, expected.values())) > 200
    assert {pair: feed.get(pair, []) for pair in in_room} == expected
    assert answers.invites
    assert answers.invites <= changed_memberships


def test_the_feed_has_events_before_a_leave(synapse_answers: tuple[Synapse, Answers], lake: DuckDBPyConnection) -> None:
    _, answers = synapse_answers
    current = {event for (event,) in lake.sql("select event_id from gold.events where is_current_state").fetchall()}
    users, rooms = zip(*answers.left_rooms, strict=True)
    lake.register("left_rooms", pa.table({"user_id": users, "room_id": rooms}))
    visible = group_by_pair(
        lake.sql(
            "select user_id, room_id, event_id from gold.event_visibility join left_rooms using (user_id, room_id)"
            " where not peeking and outcome <> 'hidden'"
        ).fetchall()
    )
    feed, _ = _read_feed(lake, answers)
    expected = without_hidden_state(answers.left_rooms, visible, current)
    assert all(len(events) > 1 for events in expected.values())
    # The feed also contains an invite after the leave, which is not compared.
    feed_events = {
        pair: [event for event in feed.get(pair, []) if event not in current or event in expected[pair]]
        for pair in expected
    }
    assert feed_events == expected


def _read_feed(lake: DuckDBPyConnection, answers: Answers) -> tuple[dict[Pair, list[str]], set[Pair]]:
    """Return each user's feed since the user's token by room, and the rooms in which the membership changed."""
    numbers = dict(lake.sql("select instance_name, instance_id from bronze.instance_map").fetchall())
    feed: dict[Pair, list[str]] = defaultdict(list)
    changed_memberships: set[Pair] = set()
    for user, room, event, position, instance, is_move in lake.sql(
        "select user_id, room_id, event_id, stream_ordering, instance_name, is_membership_change"
        " from gold.user_event_feed order by stream_ordering"
    ).fetchall():
        least, beyond = parse_token(answers.since[user])
        if position > beyond.get(numbers.get(instance, -1), least):
            feed[user, room].append(event)
            changed_memberships |= {(user, room)} if is_move else set()
    return feed, changed_memberships


def test_a_shortened_feed_equals_a_sync(
    synapse_answers: tuple[Synapse, Answers],
    lake_settings: Settings,
    lake: DuckDBPyConnection,
    visible_events: dict[Pair, list[str]],
    tmp_path: Path,
) -> None:
    hs, answers = synapse_answers
    variables = json.dumps({"server_name": hs.server_name, "feed_length": FEED_LENGTH})
    with dbt_session(environment(lake_settings), tmp_path) as session:
        models = ["feed_memberships", "user_event_feed", "user_feed_starts"]
        result = session.dbt("run", "--select", *models, "--vars", variables, branch="short")
        assert result["success"], result
    with duckdb_reader.open_duckdb(lake_settings) as connection:
        create_branch_views(connection, lake_settings, "short", ["gold.user_event_feed", "gold.user_feed_starts"])
        feed = group_by_pair(
            connection.sql(
                "select user_id, room_id, event_id from gold.user_event_feed order by stream_ordering"
            ).fetchall()
        )
        starts = dict(
            connection.sql("select user_id, resync_from from gold.user_feed_starts where resync_from > 0").fetchall()
        )
    current = {event for (event,) in lake.sql("select event_id from gold.events where is_current_state").fetchall()}
    stays = lake.sql("select user_id, room_id, since_stream_ordering from gold.current_rooms").fetchall()
    synced = {user: sync_from(answers, user, start) for user, start in starts.items() if user in answers.tokens}
    in_room = [(user, room) for user, room, since in stays if user in synced and since <= starts[user]]
    expected = without_hidden_state(
        {(user, room): synced[user].get(room, []) for user, room in in_room}, visible_events, current
    )
    assert len(synced) > 5
    assert sum(map(len, expected.values())) > 50
    assert {pair: feed.get(pair, []) for pair in in_room} == expected


def test_a_room_has_news_until_its_last_change(
    synapse_answers: tuple[Synapse, Answers], lake: DuckDBPyConnection, visible_events: dict[Pair, list[str]]
) -> None:
    _, answers = synapse_answers
    changes = lake.sql("""
        select room_id, any_value(user_id), any_value(event_id), any_value(stream_ordering)
        from gold.room_last_change join gold.current_rooms using (room_id)
        where since_stream_ordering < stream_ordering group by room_id
    """).fetchall()
    visible_changes = [
        change
        for change in changes
        if change[1] in answers.tokens and change[2] in visible_events[change[1], change[0]]
    ]
    assert len(visible_changes) > 10
    for room, user, event, position in visible_changes:
        assert sync_from(answers, user, position - 1)[room] == [event]
        assert sync_from(answers, user, position).get(room, []) == []


def test_last_membership_changes_equal_those_of_synapse(
    synapse_answers: tuple[Synapse, Answers], lake: DuckDBPyConnection
) -> None:
    hs, _ = synapse_answers
    latest = """
        select distinct on (user_id) user_id, room_id, membership_event_id, membership, event_stream_ordering
        from sliding_sync_membership_snapshots order by user_id, event_stream_ordering desc
    """
    with psycopg.connect(hs.dsn) as source:
        snapshots = {user: row for user, *row in source.execute(latest).fetchall()}
    changes = {
        user: row
        for user, *row in lake.sql(
            "select user_id, room_id, event_id, membership, stream_ordering from gold.user_last_membership_change"
            " where is_local"
        ).fetchall()
    }
    assert changes.keys() == snapshots.keys()
    # A membership that lost a race with a ban was current for a while; Synapse records the winner only.
    racing = {user for user in changes if user[1:].partition(":")[0] in forks.CROWD}
    assert all(changes[user][-1] >= snapshots[user][-1] for user in racing)
    calm = changes.keys() - racing
    assert len(calm) > 5
    assert {user: changes[user] for user in calm} == {user: snapshots[user] for user in calm}


def test_timelines_mark_extremities_and_the_purge(
    synapse_answers: tuple[Synapse, Answers], lake: DuckDBPyConnection
) -> None:
    _, answers = synapse_answers
    ends: dict[str, set[str]] = defaultdict(set)
    for room, event in lake.sql(
        "select room_id, event_id from gold.room_timeline where is_forward_extremity"
    ).fetchall():
        ends[room].add(event)
    assert {room: ends[room] for room in answers.extremities} == answers.extremities
    assert len(answers.extremities) > 10
    rows = lake.sql("select event_id from gold.room_timeline where history_ends_here").fetchall()
    assert rows == [(answers.purged,)]


def test_state_now_and_at_events_equals_that_of_synapse(
    synapse_answers: tuple[Synapse, Answers], lake: DuckDBPyConnection
) -> None:
    _, answers = synapse_answers
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
