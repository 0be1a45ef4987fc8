"""Keys of a large table are counted by its inserted rows, with the result of a count of all keys."""

from typing import Any

import pytest

from synapse_lakehouse.iceberg.write.commits import ensure_branch
from synapse_lakehouse.spark_app import SparkApp
from synapse_lakehouse.streams import stream_tables
from synapse_lakehouse.streams.primary_key_counts import measure_table_facts
from synapse_lakehouse.streams.stream_tables import StreamTables
from tests.support.small_lake import SmallLake

TABLES = ("event_edges", "rooms")
EDGES = "bronze.event_edges"

CHANGES = {
    "new keys": (f"insert into {EDGES} (event_id, prev_event_id) values ('$new', '$a'), ('$new', '$b')", (2, 0, 0)),
    "a deleted row": (f"delete from {EDGES} where event_id = '$new' and prev_event_id = '$b'", (1, 0, 0)),
    "a row without a key": (f"insert into {EDGES} (event_id) values ('$none')", (2, 1, 0)),
    "an old key": (f"insert into {EDGES} (event_id, prev_event_id) values ('$new', '$a')", (3, 1, 1)),
    "keys after a repeated one": (f"insert into {EDGES} (event_id, prev_event_id) values ('$c', '$c')", (4, 1, 1)),
}
"""SQL that changes the table, and the numbers of rows, missing keys and repeated keys that the table then has more."""


@pytest.mark.parametrize("large_table_rows", [0, stream_tables.LARGE_TABLE_ROWS], ids=["by changes", "as a whole"])
def test_keys_are_counted(lake: SmallLake, monkeypatch: pytest.MonkeyPatch, large_table_rows: int) -> None:
    monkeypatch.setattr(stream_tables, "LARGE_TABLE_ROWS", large_table_rows)
    app = lake.app()
    ensure_branch(app.spark, EDGES, app.run.branch)
    first = facts = measure(lake, app, {})
    for statement, more in CHANGES.values():
        app.spark.sql(statement)
        facts = measure(lake, app, facts)
        names = ("rows", "null_keys", "duplicate_keys")
        assert tuple(facts["event_edges"][name] - first["event_edges"][name] for name in names) == more
    assert facts["rooms"]["rows"] == first["rooms"]["rows"] > 0


def measure(lake: SmallLake, app: SparkApp, previous: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the facts of the tables on the run's branch, by table."""
    snapshots = {}
    for name in TABLES:
        table = app.catalog.load_table(f"bronze.{name}")
        head = table.snapshot_by_name(app.run.branch) or table.current_snapshot()
        assert head
        snapshots[name] = head.snapshot_id
    tables = StreamTables(app.spark, lake.declared, None, snapshots, app.catalog)
    return {row["table_name"]: row for row in measure_table_facts(tables, previous)}
