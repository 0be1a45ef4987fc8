"""The federation models in DuckDB, on events with planted clock skews and delays; dbt's unit tests cover Spark."""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, NamedTuple

import duckdb
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.duckdb_models import open_lake

HOUR = 3_600_000
MONDAY = 1_763_337_600_000
FEW_EXAMPLES = settings(max_examples=25, deadline=None, phases=[Phase.generate])
FLOOR = 50
"""Milliseconds that the fastest deliveries take at most."""

HOSTILE_TIMES = st.one_of(st.none(), st.sampled_from([2**53, -(2**53), 2**63 - 1, -(2**63), 0, -1]))


class Event(NamedTuple):
    """A live event of ``@u:<server>``."""

    server: str
    received: int
    sent: int | None


@pytest.fixture(scope="module")
def lake() -> Iterator[duckdb.DuckDBPyConnection]:
    events = (
        "event_id text, sender text, origin_server_ts bigint, received_at timestamptz, stream_ordering bigint,"
        " outlier boolean, rejected boolean, soft_failed boolean"
    )
    tables = [f"gold.events ({events})", "bronze.ex_outlier_stream (event_id text)"]
    models = [f"gold/federation/{name}.sql" for name in ("federation_delay", "silent_servers")]
    functions = [
        "collect_list(value) as coalesce(list(value) filter (where value is not null), [])",
        "size(list) as len(list)",
        "get(list, place) as list[place + 1]",
    ]
    with open_lake(tables, models, functions, server_name="here") as connection:
        yield connection


def read(lake: duckdb.DuckDBPyConnection, view: str, events: Iterable[Event]) -> list[dict[str, Any]]:
    """Replace the stored events, and return the rows of a view by server and hour."""
    rows = list(events)
    lake.execute("delete from gold.events")
    lake.execute(
        "insert into gold.events select null, '@u:' || unnest(?::text[]), unnest(?::bigint[]),"
        " make_timestamptz(unnest(?::bigint[]) * 1000), 1, false, false, false",
        [[row.server for row in rows], [row.sent for row in rows], [row.received for row in rows]],
    )
    result = lake.execute(f"select * from gold.{view} order by all")
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[Event], set[int]]:
    """Draw a clock skew, events of some days, and the hours in which each event is late."""
    skew = draw(st.integers(-24 * HOUR, 24 * HOUR))
    days = draw(st.integers(1, 8))
    late_hours = draw(st.sets(st.integers(0, 23), max_size=12))
    random = Random(draw(st.integers(0, 2**32)))
    events = []
    for hour in range(24 * days):
        for _ in range(random.randint(3, 6)):
            received = MONDAY + hour * HOUR + random.randrange(HOUR)
            delay = random.randrange(FLOOR) + (random.randrange(HOUR) + HOUR if hour % 24 in late_hours else 0)
            events.append(Event("far", received, received - delay + skew))
    return skew, events, late_hours


@FEW_EXAMPLES
@given(history=histories())
def test_a_planted_skew_is_removed(lake: duckdb.DuckDBPyConnection, history: tuple[int, list[Event], set[int]]) -> None:
    skew, events, late_hours = history
    rows = read(lake, "federation_delay", events)
    assert sum(row["events"] for row in rows) == len(events)
    for row in rows:
        assert skew - FLOOR <= row["clock_skew_ms"] <= skew
        if row["hour"].hour in late_hours:
            assert row["median_ms"] >= HOUR - FLOOR
        else:
            assert -FLOOR <= row["median_ms"] <= row["p95_ms"] <= row["max_ms"] <= FLOOR


@FEW_EXAMPLES
@given(history=histories(), change=st.integers(-24 * HOUR, 24 * HOUR))
def test_setting_a_clock_changes_only_the_skew(
    lake: duckdb.DuckDBPyConnection, history: tuple[int, list[Event], set[int]], change: int
) -> None:
    _, events, _ = history
    before = read(lake, "federation_delay", events)
    after = read(lake, "federation_delay", [row._replace(sent=(row.sent or 0) + change) for row in events])
    assert after == [row | {"clock_skew_ms": row["clock_skew_ms"] + change} for row in before]


@FEW_EXAMPLES
@given(history=histories(), forged_times=st.lists(HOSTILE_TIMES, min_size=1, max_size=9))
def test_forged_times_are_counted_and_change_nothing_else(
    lake: duckdb.DuckDBPyConnection, history: tuple[int, list[Event], set[int]], forged_times: list[int | None]
) -> None:
    _, events, _ = history
    before = read(lake, "federation_delay", events)
    forged_events = [Event(server, MONDAY, sent) for server in ("far", "'; drop", "") for sent in forged_times]
    rows = read(lake, "federation_delay", [*events, *forged_events])
    server_rows = [row for row in rows if row["server"] == "far"]
    server_rows[0] |= {"events": server_rows[0]["events"] - len(forged_times), "unmeasured_events": 0}
    assert server_rows == before
    for row in rows:
        if row["server"] != "far":
            assert (row["events"], row["unmeasured_events"]) == (len(forged_times), len(forged_times))
            assert row["clock_skew_ms"] is row["median_ms"] is row["max_ms"] is None


def test_a_few_plausible_forgeries_do_not_move_the_skew(lake: duckdb.DuckDBPyConnection) -> None:
    honest_events = [Event("far", MONDAY + n * 1000, MONDAY + n * 1000 - 20) for n in range(100)]
    forged_events = [Event("far", MONDAY + n, MONDAY + n + 10 * HOUR) for n in range(4)]
    (row,) = read(lake, "federation_delay", [*honest_events, *forged_events])
    assert (row["clock_skew_ms"], row["median_ms"], row["unmeasured_events"]) == (-20, 0, 0)


def test_few_events_show_no_skew(lake: duckdb.DuckDBPyConnection) -> None:
    rows = read(lake, "federation_delay", [Event("far", MONDAY + 5, MONDAY)] * 19)
    assert [(row["clock_skew_ms"], row["median_ms"], row["p95_ms"], row["max_ms"]) for row in rows] == [(None, 5, 5, 5)]


def test_only_live_events_of_other_servers_count(lake: duckdb.DuckDBPyConnection) -> None:
    read(lake, "federation_delay", [Event("far", MONDAY + n, MONDAY) for n in range(8)])
    changes = (
        "stream_ordering = -1", "outlier = true", "rejected = true", "soft_failed = true", "received_at = null",
        "event_id = '$former'", "sender = '@u:here'",
    )  # fmt: skip
    lake.execute("insert into bronze.ex_outlier_stream values ('$former')")
    for n, change in enumerate(changes):
        lake.execute(f"update gold.events set {change} where epoch_ms(received_at) = {MONDAY + n}")
    assert lake.execute("select server, events, max_ms from gold.federation_delay").fetchall() == [("far", 1, 7)]


def test_a_server_is_silent_by_its_own_rhythm(lake: duckdb.DuckDBPyConnection) -> None:
    hours = {
        "daily": range(0, 24 * 10, 24),
        "busy": range(200),
        "paused": [0, 1, 2, 40, 80, 160],
        "rare": [0, 1, 2, 3],
        "gone": range(-24 * 40, -24 * 30),
        "here": [237],
    }
    events = [Event(server, MONDAY + hour * HOUR, None) for server, active in hours.items() for hour in active]
    rows = read(lake, "silent_servers", events)
    assert [(row["server"], row["silent_hours"], row["longest_pause_hours"]) for row in rows] == [("busy", 38, 1)]
    assert (rows[0]["active_hours"], rows[0]["events"]) == (200, 200)
    later_rows = read(lake, "silent_servers", [*events, Event("here", MONDAY + 24 * 12 * HOUR, None)])
    assert {row["server"] for row in later_rows} == {"busy", "daily"}


def test_no_events_make_no_rows(lake: duckdb.DuckDBPyConnection) -> None:
    assert read(lake, "federation_delay", []) == read(lake, "silent_servers", []) == []


@pytest.mark.parametrize("view", ["federation_delay", "silent_servers"])
def test_a_server_without_events_is_in_no_row(lake: duckdb.DuckDBPyConnection, view: str) -> None:
    events = [Event(server, MONDAY + n * HOUR, MONDAY) for server in ("far", "gone") for n in range(9)]
    newest = Event("here", MONDAY + 99 * HOUR, None)
    assert {row["server"] for row in read(lake, view, [*events, newest])} == {"far", "gone"}
    lake.execute("delete from gold.events where sender = '@u:gone'")
    assert lake.execute(f"select distinct server from gold.{view}").fetchall() == [("far",)]
