"""The queries of the guide's section on who may see what, asked of the published sample as they stand there."""

import json
import re
from typing import Any

import pytest

from synapse_lakehouse.settings import PROJECT
from tests.conftest import Published

SECTION = (PROJECT / "docs" / "operating.md").read_text().partition("\n## Who may see what\n")[2].partition("\n## ")[0]
QUERIES = [
    query.strip()
    for block in re.findall(r"^```sql\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    for query in re.split(r";$", block, flags=re.MULTILINE)
    if query.strip()
]
CONTINUES = next(query for query in QUERIES if "<= (" in query and "safe_bound" in query)


def _ask(published: Published, sql: str) -> list[dict[str, Any]]:
    done = published.lakehouse("query", sql, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@pytest.fixture(scope="module")
def reader(published: Published) -> dict[str, Any]:
    """Who has the longest list of what is new, and a point late in a room of theirs."""
    (row,) = _ask(
        published,
        "select feed.user_id, feed.room_id, max(depth) as depth, max(feed.stream_ordering) as position"
        " from gold.user_event_feed as feed join gold.current_rooms using (user_id, room_id)"
        " join gold.events using (event_id) group by all order by count(*) desc, feed.user_id limit 1",
    )
    return row


def _about(query: str, reader: dict[str, Any], since: int = 0) -> str:
    given = {
        "!room:server": reader["room_id"],
        "@user:server": reader["user_id"],
        "(123, 4567)": f"({reader['depth']}, {reader['position']})",
        "> 4567": f"> {since}",
        "then 60 when 3 then 75 else 58": "then 2 when 3 then 3 else 1",
        "release = 7": "release = 1",
    }
    for example, meant in given.items():
        query = query.replace(example, meant)
    return query


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_a_query_of_the_guide_is_answered(published: Published, reader: dict[str, Any], query: str) -> None:
    assert _ask(published, _about(query, reader))


def test_a_feed_goes_on_where_the_release_ended(published: Published, reader: dict[str, Any]) -> None:
    (position,) = _ask(
        published, "select safe_bound from audit.stream_positions join audit.releases using (run_id)"
        " where release = 1 and stream = 'events'",
    )  # fmt: skip
    feed = f"select stream_ordering from gold.user_event_feed where user_id = '{reader['user_id']}' order by all"
    whole = [row["stream_ordering"] for row in _ask(published, feed)]
    middle = whole[len(whole) // 2]
    first, second, none = (
        [row["stream_ordering"] for row in _ask(published, _about(CONTINUES, reader, since))]
        for since in (0, middle, position["safe_bound"])
    )
    assert first == [one for one in whole if one <= position["safe_bound"]]
    assert second == [one for one in first if one > middle]
    assert none == []
