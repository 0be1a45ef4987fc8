"""A running database of an older release: streams that the release lacks are not served and not watched.

The SQL of the grants refuses a database of a release that is too old.
"""

import logging
import subprocess
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.absent_objects import find_absent_objects, read_source_catalogue
from synapse_lakehouse.postgres.access.ungranted_additions import exclude_ungranted_additions
from synapse_lakehouse.postgres.connection import connect
from synapse_lakehouse.postgres.live_stream_positions import read_live_positions
from synapse_lakehouse.postgres.recent_reports import read_recent_reports
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from synapse_lakehouse.streams.checks.synapse_startup import check_startup
from tests.support.older_source import hide_additions, show_additions
from tests.support.reader_role import create_role, reader_role

DECLARED = catalogue.load_catalogue()
PRESENT = {stream.name for stream in DECLARED.streams if not DECLARED.is_evolving(stream)}


@pytest.fixture
def older(settings: Settings, source_copy: str) -> Iterator[Settings]:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        hide_additions(owner, DECLARED)
        yield settings.model_copy(update={"synapse_dsn": source_copy})


def test_absent_streams_are_not_served(older: Settings) -> None:
    reader = DatabaseReader(older, DECLARED)
    positions = reader.read_positions()
    updates, _ = reader.read_page(("events", None), 0, positions.by_stream["events"])
    reader.close()
    assert positions.by_stream.keys() == PRESENT
    assert updates


def test_absent_streams_are_not_watched(older: Settings) -> None:
    assert read_live_positions(older, DECLARED, lambda *_: None).keys() == PRESENT
    with connect(older) as source:
        assert check_startup(source, read_source_catalogue(DECLARED, source)) == []


def test_streams_of_an_upgrade_without_its_grants_are_left_out(
    older: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        reader_role(older, str(older.synapse_dsn)) as role,
        psycopg.connect(str(older.synapse_dsn), autocommit=True) as owner,
    ):
        show_additions(owner, DECLARED)
        granted = "select has_table_privilege(%s, 'user_reports', 'select')"
        assert owner.execute(granted, [role.name]).fetchone() == (False,)
        reader_settings = older.model_copy(update={"synapse_dsn": role.dsn})
        with caplog.at_level(logging.WARNING):
            assert read_live_positions(reader_settings, DECLARED, lambda *_: 0).keys() == PRESENT
        (warning,) = [record.getMessage() for record in caplog.records]
        assert f"GRANT SELECT ON SEQUENCE thread_subscriptions_sequence TO {role.name};" in warning
        recent = read_recent_reports(reader_settings, DECLARED, datetime.fromtimestamp(0, UTC))
        assert {reports.kind for reports in recent} == {"event", "room"}
        with connect(reader_settings) as source:
            present = read_source_catalogue(DECLARED, source)
            assert check_startup(source, exclude_ungranted_additions(present, source)) == []


def test_nothing_is_absent_for_a_role_without_rights(older: Settings) -> None:
    with connect(older) as source:
        assert find_absent_objects(DECLARED, source)
        source.execute("set role pg_monitor")
        assert find_absent_objects(DECLARED, source) == ()


def test_the_sql_refuses_an_earlier_release_in_one_sentence(settings: Settings, source_copy: str) -> None:
    """The script runs before any other check, and a release before the oldest supported one lacks some tables."""
    name = f"reader_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("update schema_version set version = 87")
        owner.execute("alter table sliding_sync_joined_rooms rename to absent")
        with pytest.raises(subprocess.CalledProcessError) as error:
            create_role(settings, name, source_copy)
        assert owner.execute("select from pg_roles where rolname = %s", [name]).fetchone() is None
    assert error.value.stderr.splitlines()[0] == f"ERROR:  {DECLARED.explain_earlier_version(87)}"
