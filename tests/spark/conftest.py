"""Databases that tests change, and lakes of a few tables or streams."""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import copied_source
from tests.support import stream_lake
from tests.support.incremental_lake import Source
from tests.support.small_lake import SmallLake, small_lake
from tests.support.stream_lake import Database, MeasuredLake


@pytest.fixture(scope="module")
def lake(
    request: pytest.FixtureRequest,
    server: EmbeddedServer,
    settings: Settings,
    sample_dsn: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SmallLake]:
    """Yield a lake of the module's ``TABLES`` after one run. Some modules define their own fixture ``lake``."""
    declared = map(catalogue.load_catalogue().table, request.module.TABLES)
    with small_lake(server, settings, tmp_path_factory.mktemp("maintained"), declared) as lake:
        lake.advance()
        yield lake


@pytest.fixture(scope="module")
def source_dsn(server: EmbeddedServer, sample_dsn: str) -> Iterator[str]:
    """Yield a copy of the sample. Each test uses the source and the lake in the state that the previous test left."""
    with copied_source(server) as dsn:
        yield dsn


@pytest.fixture
def source(source_dsn: str) -> Iterator[Source]:
    """Yield a session that can change the source without checks of foreign keys."""
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")
        yield connection


@pytest.fixture
def open_measured_lake(
    new_lake: Callable[..., Settings], source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[MeasuredLake, Database]]:
    with stream_lake.open_measured_lake(new_lake(), source_copy, monkeypatch) as lake_and_source:
        yield lake_and_source
