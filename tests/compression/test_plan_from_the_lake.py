"""The plan that a cluster makes from a release equals the plan from the database."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from synapse_lakehouse.compressor.postgres import progress_store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from tests.conftest import PublishedLake, lakehouse, run_app
from tests.support.cluster import cluster

START, END = datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.heavy
@pytest.mark.parametrize("strategy", ["best", "levels"])
def test_the_plan_from_the_lake_equals_that_of_the_database(
    published: PublishedLake, strategy: str, tmp_path: Path
) -> None:
    # Other tests plan in this lake with another chunk size, so no room counts as one without savings.
    overrides = {
        "lakehouse_compressor_strategy": strategy,
        "lakehouse_compressor_number_of_rooms": "1000",
        "lakehouse_compressor_chunk_size": "499",
    }
    settings = published.settings.model_copy(update=overrides)

    with cluster(tmp_path) as spark:
        from_lake = plan_in_lake(settings, f"plan {strategy}", SPARK_MASTER=spark.master, **spark.variables())

    assert spark.applications() == 1, "rooms were planned by both workers"
    from_database = by_room(lakehouse(settings, "compress", "plan", "--format", "json"))
    assert len(from_database) > 50
    assert from_lake.keys() == from_database.keys()
    for room, plan in from_database.items():
        assert from_lake[room] | plan == from_lake[room]
        assert from_lake[room]["strategy"] == strategy


@pytest.mark.heavy
def test_a_skipped_room_takes_no_place_in_the_next_plan(published: PublishedLake, source_copy: str) -> None:
    overrides = {"synapse_dsn": source_copy, "lakehouse_compressor_number_of_rooms": "1"}
    settings = published.settings.model_copy(update=overrides)
    (skipped_room,) = plan_in_lake(settings, "plan first")
    with psycopg.connect(source_copy) as connection:
        progress_store.create_tables(connection)
        connection.execute("insert into state_compressor_state values (%s, 2, 50, 0, null)", [skipped_room])
    settings = settings.model_copy(update={"lakehouse_compressor_max_chain": "99"})

    second_plan = plan_in_lake(settings, "plan damaged")
    third_plan = plan_in_lake(settings, "plan after")

    assert second_plan.keys() == {skipped_room}
    assert "level 1 is missing" in second_plan[skipped_room]["skipped"]
    assert len(third_plan) == 1
    assert skipped_room not in third_plan
    assert [row["skipped"] for row in third_plan.values()] == [None]


def plan_in_lake(settings: Settings, run_id: str, **variables: str) -> dict[str, dict[str, Any]]:
    """Run the app, and return its plan by room."""
    result = run_app("plan_compression", settings, Run(run_id, START, END), **variables)
    assert result.returncode == 0, result.stdout + result.stderr
    query = f"select * from gold.compression_plan where run_id = '{run_id}'"
    return by_room(lakehouse(settings, "query", query, "--format", "json"))


def by_room(process: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert process.returncode == 0, process.stderr
    return {row["room_id"]: row for row in json.loads(process.stdout)}
