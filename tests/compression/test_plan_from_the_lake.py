"""The compressor's plan as a cluster makes it from a release, beside the one that comes from the database itself."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from synapse_lakehouse.run import Run
from tests.cluster import cluster
from tests.conftest import Published, lakehouse, run_app

RUN = Run("plan", datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))


@pytest.mark.heavy
@pytest.mark.parametrize("strategy", ["best", "levels"])
def test_the_plan_from_the_lake_is_the_one_from_the_database(
    published: Published, strategy: str, tmp_path: Path
) -> None:
    how = {"lakehouse_compressor_strategy": strategy, "lakehouse_compressor_number_of_rooms": "1000"}
    settings = published.settings.model_copy(update=how)
    run = Run(f"plan {strategy}", RUN.start, RUN.end)

    with cluster(tmp_path) as spark:
        done = run_app("compress_state", settings, run, SPARK_MASTER=spark.master, **spark.variables())

    assert done.returncode == 0, done.stdout + done.stderr
    assert spark.applications() == 1, "rooms were planned by both workers"
    from_database = by_room(lakehouse(settings, "compress", "plan", "--format", "json"))
    asked = f"select * from gold.compression_plan where run_id = '{run.run_id}'"
    from_lake = by_room(lakehouse(settings, "query", asked, "--format", "json"))
    assert len(from_database) > 50
    assert from_lake.keys() == from_database.keys()
    for room, plan in from_database.items():
        assert from_lake[room] | plan == from_lake[room]
        assert from_lake[room]["strategy"] == strategy


def by_room(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return {row["room_id"]: row for row in json.loads(done.stdout)}
