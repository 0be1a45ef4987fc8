"""The whole maintenance DAG, with real operators, erases data that Synapse deleted, and finds no difference."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from synapse_lakehouse.config.settings import Settings
from tests.conftest import lakehouse
from tests.support.object_store import s3_warehouse

ERIN = "@erin:synapse.example"
PURGE = """
set session_replication_role = replica;
create temp table purge as select room_id, max(topological_ordering) + 1 as kept_from from (
  select room_id, topological_ordering from events where state_key is null and room_id = (
    select room_id from events where sender = '@alice:synapse.example' and state_key is null
    group by room_id order by count(*) desc, room_id limit 1)
  order by topological_ordering limit 20) as oldest group by room_id;
create temp table purged as select event_id from events join purge using (room_id)
  where topological_ordering < kept_from and state_key is null;
update room_depth set min_depth = kept_from from purge where room_depth.room_id = purge.room_id;
delete from event_json where event_id in (select event_id from purged);
delete from event_relations where event_id in (select event_id from purged);
delete from event_to_state_groups where event_id in (select event_id from purged);
delete from events where event_id in (select event_id from purged);
update event_json set json = (json::jsonb || '{"content": {}}')::text where event_id in
  (select event_id from events where sender = '@erin:synapse.example' and state_key is null);
"""


@pytest.fixture(params=["folder", "S3"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Yield settings of a warehouse in a folder or on S3."""
    if request.param == "folder":
        yield {}
    else:
        with s3_warehouse(tmp_path) as settings:
            yield settings


@pytest.mark.heavy
def test_maintenance_erases_rows_that_synapse_deleted(
    new_lake: Callable[..., Settings], source_copy: str, warehouse: dict[str, Any]
) -> None:
    settings = new_lake(synapse_dsn=source_copy, lakehouse_erasure_days=0, **warehouse)
    assert lakehouse(settings, "run").returncode == 0
    assert lakehouse(settings, "prove-erased", ERIN).returncode == 3
    with psycopg.connect(source_copy, autocommit=True) as connection:
        connection.execute(PURGE.encode())

    result = lakehouse(settings, "airflow", "dags", "test", "lake_maintenance")

    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
    proof = lakehouse(settings, "prove-erased", ERIN)
    assert proof.returncode == 0, proof.stdout + proof.stderr
    assert "Proven" in proof.stdout
    reconciliation = (
        "select count(*) as tables, sum(differing)::int as differing, bool_or(differing is null) as cut"
        " from audit.reconciliation"
    )
    (row,) = json.loads(lakehouse(settings, "query", reconciliation, "--format", "json").stdout)
    assert row["tables"] > 50
    assert (row["differing"], row["cut"]) == (0, False)
    assert json.loads(lakehouse(settings, "branches", "--format", "json").stdout) == []
