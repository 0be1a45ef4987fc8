"""Databases, a Redis and a catalog for replication."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from sample.redis import redis
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import copied_source
from tests.replication.database import Database
from tests.replication.redis_hub import Hub


@pytest.fixture
def sample(settings: Settings) -> Iterator[Database]:
    """Yield the sample. Tests only read it."""
    with Database(settings) as database:
        yield database


@pytest.fixture(scope="session")
def _copied_dsn(server: EmbeddedServer, settings: Settings) -> Iterator[str]:
    assert settings.synapse_dsn
    with copied_source(server) as dsn:
        yield dsn


@pytest.fixture
def homeserver(settings: Settings, _copied_dsn: str) -> Iterator[Database]:
    """Yield a homeserver's database with two event persisters and without events."""
    overrides = {"synapse_dsn": _copied_dsn, "synapse_config": None, "lakehouse_stream_writers": "events:ep1,ep2"}
    with Database(settings.model_copy(update=overrides)) as database:
        database.empty()
        yield database


@pytest.fixture(scope="module")
def _redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder: Path = tmp_path_factory.mktemp("redis")
    with redis(folder, folder / "redis.log") as port:
        yield port


@pytest.fixture
def hub(_redis_port: int) -> Hub:
    """Return a Redis whose command statistics are reset."""
    hub = Hub(_redis_port)
    hub.client.config_resetstat()
    return hub


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Return an empty catalog in a file."""
    return load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
