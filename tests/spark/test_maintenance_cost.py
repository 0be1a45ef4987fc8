"""Maintenance rewrites what changed, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.support.small_lake import SmallLake, small_lake

TABLES = ["event_relations", "room_memberships"]


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, sample_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallLake]:
    with small_lake(
        server, settings, tmp_path_factory.mktemp("maintained"), map(catalogue.load_catalogue().table, TABLES)
    ) as lake:
        lake.advance()
        yield lake


def test_deleted_content_is_rewritten_before_other_rows(lake: SmallLake) -> None:
    with psycopg.connect(str(lake.settings.synapse_dsn), autocommit=True) as source:
        for name in TABLES:
            source.execute(f"delete from {name} where ctid = (select min(ctid) from {name})".encode())
    lake.advance()
    assert [lake.count_delete_files(name) for name in TABLES] == [1, 1]
    lake.maintain(days=30)
    assert [lake.count_delete_files(name) for name in TABLES] == [0, 1]
    # The latest release is also the oldest, so its deleted rows are old.
    lake.maintain()
    assert [lake.count_delete_files(name) for name in TABLES] == [0, 0]
    assert lake.equal_to_source()


def test_an_untouched_lake_is_not_rewritten(lake: SmallLake) -> None:
    lake.maintain()
    releases = len(store.read_releases(lake.app().catalog))
    files = {path: path.stat().st_mtime_ns for path in _data_files(lake)}
    lake.maintain(days=30)
    lake.maintain()
    assert {path: path.stat().st_mtime_ns for path in _data_files(lake)} == files
    assert len(store.read_releases(lake.app().catalog)) == releases


def _data_files(lake: SmallLake) -> list[Path]:
    """Data files of bronze."""
    return list(Path(lake.settings.warehouse.removeprefix("file://"), "bronze").rglob("*.parquet"))
