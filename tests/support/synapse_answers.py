"""Responses of Synapse's client API, with which tests compare the lake's tables."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from sample.client import ADMIN, V3, Client, Json, q
from sample.traffic.stage import Stage

RECENT, ALL = 20, 1000
"""Maximum number of events of each room in a first sync, and in a later sync."""

Pair = tuple[str, str]


@dataclass
class Answers:
    """Responses of Synapse.

    * event IDs by user and room: ``pages`` of /messages; ``first``: the first sync. The sync from ``tokens``: ``news``
      of joined rooms, and ``left_rooms`` of rooms that the user left.
    * by user: ``tokens`` of /sync, and ``since``: the event positions in them.
    * by room: ``extremities`` and ``state_now``. By event: ``state_at``.
    """

    pages: dict[Pair, list[str]] = field(default_factory=dict)
    first: dict[Pair, list[str]] = field(default_factory=dict)
    news: dict[Pair, list[str]] = field(default_factory=dict)
    left_rooms: dict[Pair, list[str]] = field(default_factory=dict)
    invites: set[Pair] = field(default_factory=set)
    clients: dict[str, Client] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    since: dict[str, str] = field(default_factory=dict)
    extremities: dict[str, set[str]] = field(default_factory=dict)
    purged: str = ""
    state_now: dict[str, set[str]] = field(default_factory=dict)
    state_at: dict[str, set[str]] = field(default_factory=dict)


def depart(stage: Stage) -> set[Pair]:
    """End memberships: users leave, leave and forget, are banned, or are kicked and invited again.

    Each of the rooms has a different history visibility. Members who stay send more messages. Return the pairs of
    departed user and room.
    """
    alice, bob, mallory, erin = (stage.users[name] for name in ("alice", "bob", "mallory", "erin"))
    world_readable, shared, invited, joined, *_ = stage.found["visibility"]
    bob.leave(world_readable)
    erin.leave(shared)
    erin.forget(shared)
    alice.moderate("ban", invited, mallory)
    alice.moderate("kick", joined, bob)
    for room in (world_readable, shared, invited, joined):
        stage.chat(room, ["alice"], 3)
    alice.invite(joined, bob)
    return {
        (bob.user_id, world_readable), (erin.user_id, shared), (mallory.user_id, invited), (bob.user_id, joined)
    }  # fmt: skip


def ask_synapse(users: list[Client], admin: Client, since: dict[str, str]) -> Answers:
    answers = Answers(
        clients={user.user_id: user for user in users},
        tokens=since,
        since={user: token.partition("_")[0] for user, token in since.items()},
    )
    for user in users:
        joined = sync(user, RECENT)["rooms"].get("join", {})
        for room, entry in joined.items():
            key = user.user_id, room
            answers.first[key] = event_ids(entry["timeline"]["events"])
            answers.pages[key] = list(_scroll_back(user, room))
            if room not in answers.state_now:
                state = admin.call("GET", f"{ADMIN}/v1/rooms/{q(room)}/state")
                answers.state_now[room] = set(event_ids(state["state"]))
                extremities = admin.call("GET", f"{ADMIN}/v1/rooms/{q(room)}/forward_extremities")
                answers.extremities[room] = set(event_ids(extremities["results"]))
                for event_id in answers.pages[key][::7]:
                    path = f"{V3}/rooms/{q(room)}/context/{q(event_id)}"
                    answers.state_at[event_id] = set(event_ids(user.call("GET", path, params={"limit": "0"})["state"]))
        rooms = sync(user, ALL, since[user.user_id])["rooms"]
        for room, entry in rooms.get("join", {}).items():
            answers.news[user.user_id, room] = event_ids(entry["timeline"]["events"])
        for room, entry in rooms.get("leave", {}).items():
            answers.left_rooms[user.user_id, room] = event_ids(entry["timeline"]["events"])
        answers.invites |= {(user.user_id, room) for room in rooms.get("invite", {})}
    return answers


def sync(user: Client, limit: int, since: str = "") -> Json:
    query = {"timeout": "0", "filter": f'{{"room": {{"timeline": {{"limit": {limit}}}}}}}'}
    return {"rooms": {}} | user.call("GET", f"{V3}/sync", params=query | ({"since": since} if since else {}))


def _scroll_back(user: Client, room: str) -> Iterator[str]:
    query = {"dir": "b", "limit": "50"}
    while True:
        page = user.call("GET", f"{V3}/rooms/{q(room)}/messages", params=query)
        yield from event_ids(page["chunk"])
        if "end" not in page:
            return
        query["from"] = page["end"]


def event_ids(events: list[Json]) -> list[str]:
    return [event["event_id"] for event in events]


def group_by_pair(rows: list[tuple[str, str, str]]) -> dict[Pair, list[str]]:
    """Group event IDs by user and room."""
    events: dict[Pair, list[str]] = defaultdict(list)
    for user, room, event in rows:
        events[user, room].append(event)
    return dict(events)


def parse_token(token: str) -> tuple[int, dict[int, int]]:
    """Parse ``s58`` or ``m58~2.60~3.75``: the minimum position, and the positions of writers that are ahead."""
    minimum, *writers = token[1:].split("~")
    return int(minimum), {int(part.split(".")[0]): int(part.split(".")[1]) for part in writers}


def sync_from(answers: Answers, user: str, position: int) -> dict[str, list[str]]:
    """Return the events by room in a sync of ``user`` from a position."""
    token = f"s{position}_{answers.tokens[user].partition('_')[2]}"
    rooms = sync(answers.clients[user], ALL, token)["rooms"].get("join", {})
    return {room: event_ids(entry["timeline"]["events"]) for room, entry in rooms.items()}


def without_hidden_state(
    synced_events: dict[Pair, list[str]], visible_events: dict[Pair, list[str]], current: set[str]
) -> dict[Pair, list[str]]:
    """Return synced events without invisible current state, which a sync contains nevertheless."""
    return {
        pair: [event for event in events if event in set(visible_events.get(pair, ())) or event not in current]
        for pair, events in synced_events.items()
    }
