"""``lakehouse rooms cleanup`` reads rooms with DuckDB and prints API calls; dbt's unit tests cover Spark."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.cli.rooms import cleanup
from synapse_lakehouse.cli.rooms.cleanup import CleanupRoom, build_calls, describe_calls
from tests.support.duckdb_models import open_lake

TABLES = (
    "silver.rooms (room_id text, is_blocked boolean, joined_members bigint, joined_local_members bigint)",
    "silver.room_cleanup_rows (room_id text, table_name text, stored_rows bigint)",
    "audit.relation_sizes (kind text, name text, bytes bigint, live_rows bigint, measured_at timestamptz)",
    "bronze.local_current_membership (room_id text, user_id text, membership text)",
    "bronze.room_memberships (room_id text, user_id text, forgotten int)",
    "gold.room_last_change (room_id text, received_at timestamptz)",
    "gold.events (room_id text, contains_url boolean, outlier boolean)",
)
ROWS = """
insert into silver.rooms values ('!old', false, 3, 0), ('!new', true, 0, 0), ('!bare', false, 0, 0),
    ('!used', false, 1, 1);
insert into silver.room_cleanup_rows values ('!old', 'events', 10), ('!old', 'event_json', 10), ('!new', 'events', 2);
insert into audit.relation_sizes values
    ('table', 'events', 9999, 1, '2026-01-01'), ('table', 'events', 1000, 3, '2026-01-02'),
    ('table', 'event_json', 500, 0, '2026-01-02'), ('database', 'event_json', 9, 1, '2026-01-03');
insert into bronze.local_current_membership values
    ('!old', '@a', 'leave'), ('!old', '@b', 'leave'), ('!old', '@c', 'invite'), ('!old', '@d', 'ban');
insert into bronze.room_memberships values ('!old', '@a', 1), ('!old', '@a', 0), ('!old', '@b', 1), ('!old', '@d', 0);
insert into gold.room_last_change values ('!old', now() - interval 9 day), ('!new', now() - interval 1 day);
insert into gold.events values ('!old', true, false), ('!old', false, false), ('!old', true, true);
"""


@pytest.fixture(scope="module")
def lake() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_lake(TABLES, ["gold/room_cleanup.sql"]) as connection:
        connection.execute(ROWS)
        yield connection


def test_rooms_are_listed_with_the_rows_a_deletion_frees(lake: duckdb.DuckDBPyConnection) -> None:
    old, new, bare = (CleanupRoom(*row) for row in lake.execute(cleanup.build_query(0, 9)).fetchall())
    assert old[:5] == ("!old", False, 3, 1, 2)
    assert old.last_event_at
    assert timedelta(days=8) < datetime.now(UTC) - old.last_event_at < timedelta(days=10)
    assert old[6:] == (20, 3333, 1)
    assert (new.room_id, new.is_blocked, new.stored_rows, new.estimated_bytes, new.media_events) == (
        "!new",
        True,
        2,
        667,
        0,
    )
    assert bare == ("!bare", False, 0, 0, 0, None, 0, None, 0)


@pytest.mark.parametrize(("days", "limit", "rooms"), [(0, 1, ["!old"]), (2, 9, ["!old", "!bare"]), (10, 9, ["!bare"])])
def test_rooms_are_chosen_by_idle_days(
    lake: duckdb.DuckDBPyConnection, days: int, limit: int, rooms: list[str]
) -> None:
    assert [row[0] for row in lake.execute(cleanup.build_query(days, limit)).fetchall()] == rooms


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_room_id_is_one_segment_of_the_path(text: str) -> None:
    calls = build_calls(f"!{text}")
    assert calls
    listing, deletion = calls
    assert listing.isascii()
    assert listing.isprintable()
    path = deletion.removeprefix("DELETE /_synapse/admin/v2/rooms/")
    assert not set(path) & set("/?#\\!'\"$`; &")
    assert unquote(path) == f"!{text}"
    assert listing == f"GET /_synapse/admin/v1/room/{path}/media"


@pytest.mark.parametrize("room_id", ["", "..", ".", "../users/@a:b", "delete_status", "#alias:server"])
def test_an_invalid_room_id_has_no_call(room_id: str) -> None:
    assert build_calls(room_id) is None
    assert not any("DELETE" in line for line in describe_calls([CleanupRoom(room_id, False, 0, 0, 0, None, 1, 1, 1)]))


def test_media_are_listed_before_their_room_is_deleted() -> None:
    lines = [*describe_calls([CleanupRoom("!a/b:x", False, 0, 0, 0, None, 1, 1, 7)])]
    calls = [line for line in lines if line.startswith(("GET", "DELETE"))]
    assert calls == [
        "GET /_synapse/admin/v1/room/%21a%2Fb%3Ax/media",
        'DELETE /_synapse/admin/v2/rooms/%21a%2Fb%3Ax {"purge": true, "block": false}',
        "DELETE /_synapse/admin/v1/media/<server_name>/<media_id>",
    ]
    assert not any(
        line.startswith("GET") for line in describe_calls([CleanupRoom("!a", False, 0, 0, 0, None, 1, 1, 0)])
    )


@pytest.mark.parametrize("room", ["!old", "!new", "!bare"])
def test_a_deleted_room_is_in_no_row(room: str) -> None:
    with open_lake(TABLES, ["gold/room_cleanup.sql"]) as connection:
        connection.execute(ROWS)
        before = [row[0] for row in connection.execute("from gold.room_cleanup").fetchall()]
        for table in TABLES:
            if "room_id" in table:
                connection.execute(f"delete from {table.partition(' ')[0]} where room_id = ?", [room])
        after = [row[0] for row in connection.execute("from gold.room_cleanup").fetchall()]
    assert sorted(before) == sorted([*after, room])
