"""Releases of Synapse follow ``lakehouse replicate serve`` with their own client classes."""

from collections.abc import Iterator
from typing import Final

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import copied_source
from tests.replication import every_stream
from tests.replication.database import Database
from tests.replication.release_client import follow_release
from tests.support.synapse_releases import NEWEST, release_python

pytestmark = pytest.mark.heavy

STREAMS: Final = {"1.0.0": 10, "1.12.4": 10, "1.40.0": 10, "1.70.1": 10, NEWEST: 16}
"""Number of streams with a table, by release. Other streams of the release have a position and no rows."""


@pytest.fixture(scope="module")
def filled_database(server: EmbeddedServer, settings: Settings) -> Iterator[Database]:
    """Yield a copy of the sample in which every table behind a stream has rows, and some tokens have several."""
    with copied_source(server) as dsn, Database(settings.model_copy(update={"synapse_dsn": dsn})) as database:
        every_stream.fill(database)
        yield database


@pytest.mark.parametrize("version", STREAMS)
def test_every_row_arrives_once_and_is_parsed(version: str, filled_database: Database) -> None:
    rows, streams = follow_release(filled_database, version, release_python(version))
    assert len(streams) == STREAMS[version]
    assert rows
