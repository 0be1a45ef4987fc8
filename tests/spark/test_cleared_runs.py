"""A cleared run is retried under its name; rows of an unpublished try do not count."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import branches
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.spark_app import SparkApp
from tests.support.small_lake import SmallLake, small_lake

TABLES = ("event_json", "erased_users", "receipts_linearized")
CENSOR = (
    "update event_json set json = '{}' where event_id in (select event_id from event_json order by event_id limit 7)"
)


@pytest.fixture
def lake(server: EmbeddedServer, settings: Settings, sample_dsn: str, tmp_path: Path) -> Iterator[SmallLake]:
    with small_lake(server, settings, tmp_path, map(catalogue.load_catalogue().table, TABLES)) as lake:
        yield lake


def test_changes_before_a_failed_retry_are_copied(lake: SmallLake) -> None:
    lake.advance()
    with psycopg.connect(str(lake.settings.synapse_dsn), autocommit=True) as source:
        source.execute("set session_replication_role = replica")
        source.execute("update event_json set format_version = format_version where event_id < '$B'")
        first_app = lake.app()
        lake.copy(first_app)
        store.append_audit_rows(first_app.catalog, "audit.stream_positions", [_position(1)], first_app.run)
        lake.publish(first_app)
        release = store.read_latest_release(first_app.catalog)
        assert release

        source.execute(CENSOR)
        retry_app = SparkApp("test", first_app.run, lake.settings)
        lake.copy(retry_app)
        store.append_audit_rows(retry_app.catalog, "audit.stream_positions", [_position(2)], retry_app.run)
    branches.drop_branch(retry_app.catalog, retry_app.run.branch)
    positions = store.read_release_rows(retry_app.catalog, "audit.stream_positions", release)
    assert [position["safe_bound"] for position in positions] == [1]
    lake.maintain(days=30)
    compacted_release = store.read_latest_release(retry_app.catalog)
    assert compacted_release
    assert compacted_release.is_compaction_of(release)
    assert [
        row["safe_bound"]
        for row in store.read_release_rows(retry_app.catalog, "audit.stream_positions", compacted_release)
    ] == [1]

    ledger = lake.advance()
    assert ledger["event_json"]["extent"] == "changed"
    assert ledger["event_json"]["rows_replaced"] == 7
    assert lake.equals_source()


def _position(bound: int) -> dict[str, object]:
    return {"stream": "events", "safe_bound": bound, "measured_at": datetime.now(UTC)}
