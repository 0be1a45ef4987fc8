"""The queries of the visibility guide and their macro run on the published sample."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from dbt.cli.main import dbtRunner

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from tests.conftest import PublishedLake

GUIDE = (PROJECT_FOLDER / "docs" / "how-to" / "see-who-may-see-what.md").read_text()
QUERIES = [
    query.strip()
    for block in re.findall(r"^```sql\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    for query in re.split(r";$", block, flags=re.MULTILINE)
    if query.strip()
]
PAGE_QUERY = next(query for query in QUERIES if "<= (123, 4567)" in query)
FEED_QUERY = next(query for query in QUERIES if "<= (" in query and "safe_bound" in query)


@pytest.fixture(scope="module")
def reader(published: PublishedLake) -> dict[str, Any]:
    """Return the user with the longest feed, and the last position in one of the user's rooms."""
    (row,) = published.rows(
        "query",
        "select feed.user_id, feed.room_id, max(depth) as depth, max(feed.stream_ordering) as position"
        " from gold.user_event_feed as feed join gold.current_rooms using (user_id, room_id)"
        " join gold.events using (event_id) group by all order by count(*) desc, feed.user_id limit 1",
    )
    return row


def _set_parameters(query: str, reader: dict[str, Any], since: int = 0) -> str:
    parameters = {
        "!room:server": reader["room_id"],
        "@user:server": reader["user_id"],
        "(123, 4567)": f"({reader['depth']}, {reader['position']})",
        "> 4567": f"> {since}",
        "then 60 when 3 then 75 else 58": "then 2 when 3 then 3 else 1",
        "release = 7": "release = 1",
    }
    for example, value in parameters.items():
        query = query.replace(example, value)
    return query


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_a_query_of_the_guide_returns_rows(published: PublishedLake, reader: dict[str, Any], query: str) -> None:
    assert published.rows("query", _set_parameters(query, reader))


def test_a_feed_continues_after_the_release(published: PublishedLake, reader: dict[str, Any]) -> None:
    (position,) = published.rows(
        "query", "select safe_bound from audit.stream_positions join audit.releases using (run_id)"
        " where release = 1 and stream = 'events'",
    )  # fmt: skip
    feed = f"select stream_ordering from gold.user_event_feed where user_id = '{reader['user_id']}' order by all"
    full = [row["stream_ordering"] for row in published.rows("query", feed)]
    middle = full[len(full) // 2]
    first, second, none = (
        [row["stream_ordering"] for row in published.rows("query", _set_parameters(FEED_QUERY, reader, since))]
        for since in (0, middle, position["safe_bound"])
    )
    assert first == [item for item in full if item <= position["safe_bound"]]
    assert second == [item for item in first if item > middle]
    assert none == []


@pytest.fixture(scope="module")
def compile_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str | None]:
    """Return a function that compiles ``page_back`` with its arguments to SQL; None if dbt refuses them."""
    folder = str(tmp_path_factory.mktemp("dbt"))
    dbt = PROJECT_FOLDER / "dbt"
    options = ["--project-dir", dbt, "--profiles-dir", dbt, "--target-path", folder, "--log-path", folder]
    offline = ["--no-introspect", "--no-populate-cache"]

    def compile(*arguments: object) -> str | None:
        call = ", ".join("none" if argument is None else repr(argument) for argument in arguments)
        page = f"{{{{ page_back({call}) }}}}"
        result = dbtRunner().invoke(["-q", "compile", *map(str, options), *offline, "--inline", page])
        return str(result.result.results[0].node.compiled_code) if result.success else None  # type: ignore[union-attr]

    return compile


def _page(
    published: PublishedLake, compile_page: Callable[..., str | None], *arguments: object
) -> list[dict[str, Any]]:
    sql = compile_page(*arguments)
    assert sql
    return published.rows("query", sql)


def test_pages_follow_each_other(
    published: PublishedLake, reader: dict[str, Any], compile_page: Callable[..., str | None]
) -> None:
    reader_ids = reader["room_id"], reader["user_id"]
    full = published.rows(
        "query",
        "select event_id, outcome from gold.events join gold.event_visibility as seen using (room_id, event_id)"
        f" where room_id = '{reader_ids[0]}' and user_id = '{reader_ids[1]}' and not peeking and outcome <> 'hidden'"
        " order by topological_ordering desc, stream_ordering desc",
    )
    length = len(full) // 4
    pages: list[list[dict[str, Any]]] = []
    while (
        page := _page(published, compile_page, *reader_ids, pages[-1][-1]["next_token"] if pages else None, length)
    ) != []:
        pages.append(page)
    assert length > 1
    assert len(pages) > 3
    assert [{name: row[name] for name in ("event_id", "outcome")} for page in pages for row in page] == full


def test_a_page_begins_with_the_event_that_its_token_names(
    published: PublishedLake, reader: dict[str, Any], compile_page: Callable[..., str | None]
) -> None:
    token = f"t{reader['depth']}-{reader['position']}"
    page = _page(published, compile_page, reader["room_id"], reader["user_id"], token)
    rows = published.rows("query", _set_parameters(PAGE_QUERY, reader))
    assert [{name: row[name] for name in rows[0]} for row in page] == rows
    assert (page[0]["topological_ordering"], page[0]["stream_ordering"]) == (reader["depth"], reader["position"])


def test_arguments_of_page_back_are_data(
    published: PublishedLake, reader: dict[str, Any], compile_page: Callable[..., str | None]
) -> None:
    for room_id in ("!it's", "!o\\'r true --", "' or true --", "${room}"):
        assert _page(published, compile_page, room_id, reader["user_id"]) == []
    for token in ("t1", "s5", "t1-2 or true", "t1-2\n", "m1~2.3", ""):
        assert compile_page(reader["room_id"], reader["user_id"], token) is None
    assert compile_page(reader["room_id"], reader["user_id"], None, "5; drop table") is None
