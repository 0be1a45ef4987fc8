"""Databases for replication."""

from collections.abc import Iterator

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import copied_source
from tests.replication.database import Database


@pytest.fixture
def sample(settings: Settings) -> Iterator[Database]:
    """The sample; tests only read it."""
    with Database(settings) as database:
        yield database


@pytest.fixture(scope="session")
def _copy(server: EmbeddedServer, settings: Settings) -> Iterator[str]:
    assert settings.synapse_dsn
    with copied_source(server) as dsn:
        yield dsn


@pytest.fixture
def homeserver(settings: Settings, _copy: str) -> Iterator[Database]:
    """A homeserver with two event persisters, before its first event."""
    given = {"synapse_dsn": _copy, "synapse_config": None, "lakehouse_stream_writers": "events:ep1,ep2"}
    with Database(settings.model_copy(update=given)) as database:
        database.empty()
        yield database
