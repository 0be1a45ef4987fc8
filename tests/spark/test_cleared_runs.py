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

FEW = ("event_json", "erased_users", "receipts_linearized")
CENSOR = (
    "update event_json set json = '{}' where event_id in (select event_id from event_json order by event_id limit 7)"
)


@pytest.fixture
def lake(server: EmbeddedServer, settings: Settings, sample_dsn: str, tmp_path: Path) -> Iterator[SmallLake]:
    with small_lake(server, settings, tmp_path, map(catalogue.load_catalogue().table, FEW)) as lake:
        yield lake


def test_changes_before_a_failed_retry_are_copied(lake: SmallLake) -> None:
    lake.advance()
    with psycopg.connect(str(lake.settings.synapse_dsn), autocommit=True) as source:
        source.execute("set session_replication_role = replica")
        source.execute("update event_json set format_version = format_version where event_id < '$B'")
        first = lake.app()
        lake.copy(first)
        store.append_audit_rows(first.catalog, "audit.stream_positions", [_position(1)], first.run)
        lake.publish(first)
        release = store.read_latest_release(first.catalog)
        assert release

        source.execute(CENSOR)
        again = SparkApp("test", first.run, lake.settings)
        lake.copy(again)
        store.append_audit_rows(again.catalog, "audit.stream_positions", [_position(2)], again.run)
    branches.drop_branch(again.catalog, again.run.branch)
    positions = store.read_release_rows(again.catalog, "audit.stream_positions", release)
    assert [position["safe_bound"] for position in positions] == [1]
    lake.maintain(days=30)
    compacted = store.read_latest_release(again.catalog)
    assert compacted
    assert compacted.is_compaction_of(release)
    assert [
        row["safe_bound"] for row in store.read_release_rows(again.catalog, "audit.stream_positions", compacted)
    ] == [1]

    ledger = lake.advance()
    assert ledger["event_json"]["extent"] == "changed"
    assert ledger["event_json"]["rows_replaced"] == 7
    assert lake.equal_to_source()


def _position(bound: int) -> dict[str, object]:
    return {"stream": "events", "safe_bound": bound, "measured_at": datetime.now(UTC)}
