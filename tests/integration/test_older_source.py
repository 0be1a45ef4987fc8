"""A running database of an older release: streams that it lacks are not served and not watched."""

from collections.abc import Iterator

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.absent_objects import find_absent_objects, read_source_catalogue
from synapse_lakehouse.postgres.connection import connect
from synapse_lakehouse.postgres.live_stream_positions import read_live_positions
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from synapse_lakehouse.streams.checks.synapse_startup import check_startup
from tests.support.older_source import hide_additions

DECLARED = catalogue.load_catalogue()
PRESENT = {stream.name for stream in DECLARED.streams if not DECLARED.is_evolving(stream)}


@pytest.fixture
def older(settings: Settings, source_copy: str) -> Iterator[Settings]:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        hide_additions(owner, DECLARED)
        yield settings.model_copy(update={"synapse_dsn": source_copy})


def test_served_streams(older: Settings) -> None:
    reader = DatabaseReader(older, DECLARED)
    positions = reader.read_positions()
    updates, _ = reader.read_page(("events", None), 0, positions.by_stream["events"])
    reader.close()
    assert positions.by_stream.keys() == PRESENT
    assert updates


def test_watched_streams(older: Settings) -> None:
    assert read_live_positions(older, DECLARED, lambda *_: None).keys() == PRESENT
    with connect(older) as source:
        assert check_startup(source, read_source_catalogue(DECLARED, source)) == []


def test_nothing_is_absent_for_a_role_without_rights(older: Settings) -> None:
    with connect(older) as source:
        assert find_absent_objects(DECLARED, source)
        source.execute("set role pg_monitor")
        assert find_absent_objects(DECLARED, source) == ()
