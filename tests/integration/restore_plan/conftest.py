"""A lake with releases of room state, and a room with one chain of state groups."""

from collections.abc import Callable

import pytest

from synapse_lakehouse.config.settings import Settings
from tests.support.restore_plan import execute, store_group
from tests.support.state_releases import StateReleases


@pytest.fixture
def releases(source_copy: str, new_lake: Callable[..., Settings]) -> StateReleases:
    return StateReleases(new_lake(synapse_dsn=source_copy))


@pytest.fixture
def chain(releases: StateReleases) -> tuple[str, list[int]]:
    """Return a room and its state groups, in one chain; each sets the topic, and the first one the whole state."""
    room, groups = "!chain:example.org", [8_000_000 + number for number in range(5)]
    for number, group in enumerate(groups):
        execute(
            releases.dsn,
            f"insert into state_groups (id, room_id, event_id) values ({group}, '{room}', '${group}')",
            f"insert into event_to_state_groups values ('${group}', {group})",
        )
        pieces = {} if number else {"create": "$c", "name": "$n", "rules": "$r"}
        store_group(
            releases.dsn, group, room, pieces | {"topic": f"$t{number}"}, groups[number - 1] if number else None
        )
    releases.publish()
    return room, groups
