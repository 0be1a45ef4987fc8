"""The views of received commands return correct rows in DuckDB; dbt's unit tests cover Spark."""

import duckdb
import pytest
from jinja2 import Template

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.iceberg.read import duckdb_reader

COMMANDS = """
create table bronze.replication_commands as
select epoch_ms(heard_ms::bigint)::timestamptz as received_at, source, 'redis' as dialect, command, stream,
    'ep1' as instance, token::bigint as token, ordinal::int as ordinal, null::bigint as previous, json as row,
    null::text as fields
from (values
    (1700000000100, 'redis', 'RDATA', 'events', 5, 0, '["ev",[]]'),
    (1700000000100, 'redis', 'RDATA', 'events', 5, 1, '["state",[]]'),
    (1700000000300, 'redis', 'RDATA', 'events', 6, 0, '["ev",[]]'),
    (1700000009000, 'database', 'RDATA', 'events', 7, 0, '["ev",[]]'),
    (1700000000007, 'redis', 'RDATA', 'backfill', 5, 0, '[]'),
    (1700000000500, 'redis', 'RDATA', 'caches', 8, 0, '["get_user",null,1700000000490]'),
    (1700000000500, 'redis', 'RDATA', 'caches', 9, 0, '["get_user","ab12",null]'),
    (1700000000500, 'redis', 'RDATA', 'caches', 10, 0, '["get_user","ab12",null]'),
    (1700000000500, 'redis', 'RDATA', 'caches', 11, 0, '["cs_cache_fake","cd34",null]'),
    (1700000000500, 'database', 'RDATA', 'caches', 12, 0, 'null'),
    (1700000000500, 'redis', 'USER_SYNC', null, null, null, null)
) as heard(heard_ms, source, command, stream, token, ordinal, json)
"""
EVENTS = """
create table gold.events as select * from (values
    ('$a', 5, 1700000000000), ('$b', 6, 1700000000000), ('$c', -5, 1700000000000), ('$d', 7, 1700000000000)
) as events(event_id, stream_ordering, received_ts)
"""


@pytest.mark.parametrize(
    ("view", "columns", "expected"),
    [
        (
            "replication_lag", "stream, announced, median_ms, p95_ms, max_ms",
            [("backfill", 1, 7, 7, 7), ("caches", 1, 10, 10, 10), ("events", 2, 200, 290, 300)],
        ),
        (
            "cache_churn", "cache, invalidations, entries, whole",
            [("_get_current_state_event_id", 1, 1, 0), ("get_partial_current_state_ids", 1, 1, 0),
             ("get_room_encryption", 1, 1, 0), ("get_room_summary", 1, 1, 0), ("get_room_type", 1, 1, 0),
             ("get_sliding_sync_rooms_for_user_from_membership_snapshots", 1, 0, 1), ("get_user", 3, 1, 1)],
        ),
        (
            "replication_activity", "source, command, stream, commands",
            [("database", "RDATA", "caches", 1), ("database", "RDATA", "events", 1), ("redis", "RDATA", "backfill", 1),
             ("redis", "RDATA", "caches", 4), ("redis", "RDATA", "events", 3), ("redis", "USER_SYNC", None, 1)],
        ),
    ],
)  # fmt: skip
def test_a_view_is_equal_without_a_jvm(view: str, columns: str, expected: list[tuple[object, ...]]) -> None:
    text = (PROJECT_FOLDER / "dbt" / "models" / "gold" / "replication" / f"{view}.sql").read_text()
    names = {"config": lambda **_: "", "source": lambda _, name: f"bronze.{name}", "ref": lambda name: f"gold.{name}"}
    sql = Template(text).render(names)
    with duckdb.connect() as lake:
        lake.execute("create schema bronze; create schema gold; set TimeZone = 'UTC'")
        for statement in (*duckdb_reader.SPARK_FUNCTION_MACROS, COMMANDS, EVENTS):
            lake.execute(statement)
        rows = lake.execute(f"select {columns} from ({sql}) order by all")
        assert rows.fetchall() == expected
