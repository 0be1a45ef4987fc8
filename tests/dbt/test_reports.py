"""``gold.reports`` returns correct rows in DuckDB; dbt's unit tests cover Spark."""

from datetime import UTC, datetime

import pytest

from tests.support.duckdb_models import open_lake

TABLES = (
    "bronze.event_reports (id bigint, received_ts bigint, room_id text, event_id text, user_id text)",
    "bronze.room_reports (id bigint, received_ts bigint, room_id text, user_id text)",
    "bronze.user_reports (id bigint, received_ts bigint, target_user_id text, user_id text)",
    "gold.events (event_id text, sender text)",
)


def test_reports_of_each_kind_have_their_time_and_server() -> None:
    with open_lake(TABLES, ["gold/reports.sql"]) as lake:
        assert lake.execute("from gold.reports").fetchall() == []
        lake.execute("insert into bronze.event_reports values (1, 1700000000000, '!r', '$a', '@me:here')")
        lake.execute("insert into bronze.room_reports values (1, 1700000000000, '!r', '@me:here')")
        lake.execute("insert into bronze.user_reports values (1, 1700000000000, '@bad:far:8448', '@me:here')")
        lake.execute("insert into gold.events values ('$a', '@bad:elsewhere')")
        received_at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        assert lake.execute("from gold.reports order by kind").fetchall() == [
            ("event", 1, received_at, "!r", "$a", "@bad:elsewhere", "elsewhere", "@me:here"),
            ("room", 1, received_at, "!r", None, None, None, "@me:here"),
            ("user", 1, received_at, None, None, "@bad:far:8448", "far:8448", "@me:here"),
        ]


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("event_reports", ("!e", "$e", "@by-event:here", "@bad:elsewhere")),
        ("room_reports", ("!r", "@by-room:here")),
        ("user_reports", ("@bad:far", "@by-user:here")),
    ],
)
def test_a_deleted_report_is_in_no_row(table: str, names: tuple[str, ...]) -> None:
    with open_lake(TABLES, ["gold/reports.sql"]) as lake:
        lake.execute("insert into bronze.event_reports values (1, 1700000000000, '!e', '$e', '@by-event:here')")
        lake.execute("insert into bronze.room_reports values (1, 1700000000000, '!r', '@by-room:here')")
        lake.execute("insert into bronze.user_reports values (1, 1700000000000, '@bad:far', '@by-user:here')")
        lake.execute("insert into gold.events values ('$e', '@bad:elsewhere')")
        before = lake.execute("from gold.reports").fetchall()
        lake.execute(f"delete from bronze.{table}")
        after = lake.execute("from gold.reports").fetchall()
    assert all(name in str(before) and name not in str(after) for name in names)
    assert len(after) == 2
