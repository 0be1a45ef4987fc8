"""Databases that releases of Synapse create equal the recorded facts, fit the catalogue, and can be copied."""

from collections.abc import Iterator

import psycopg
import pytest

from sample.releases import REPRESENTATIVES, Release, create_database, load_releases, read_facts, release_python
from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.access.absent_objects import read_source_catalogue
from synapse_lakehouse.postgres.access.grants import build_grants_sql
from synapse_lakehouse.postgres.access.schema_drift import find_drift, find_unknown_objects
from synapse_lakehouse.postgres.rows.select_sql import build_select, build_stream_id_counts
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from tests.conftest import copied_source

pytestmark = pytest.mark.heavy

RELEASES = {release.version: release for release in load_releases()}


@pytest.fixture(scope="module", params=REPRESENTATIVES)
def release_database(request: pytest.FixtureRequest, server: EmbeddedServer) -> Iterator[tuple[Release, set[str], str]]:
    """Yield a release, its streams, and the DSN of a database that the release created."""
    release = RELEASES[request.param]
    with copied_source(server, "template0") as dsn, release_python(release.version, release.released) as python:
        yield release, set(create_database(python, dsn)), dsn


def test_recorded_facts_equal_those_of_the_release(release_database: tuple[Release, set[str], str]) -> None:
    release, streams, dsn = release_database
    schema_version, compat_version, facts = read_facts(dsn)
    assert (schema_version, compat_version) == (release.schema_version, release.compat_version)
    assert facts | {f"stream {name}" for name in streams} == release.facts


def test_a_fresh_database_fits_and_can_be_copied(
    release_database: tuple[Release, set[str], str], settings: Settings
) -> None:
    declared, (release, _, dsn) = catalogue.load_catalogue(), release_database
    source = settings.model_copy(update={"synapse_dsn": dsn, "synapse_server_name": "synapse.example"})
    with export_snapshot(source, declared) as (connection, snapshot):
        assert snapshot.schema_version == release.schema_version
        source_catalogue = read_source_catalogue(declared, connection)
        assert find_drift(source_catalogue, connection) == []
        assert find_unknown_objects(declared, connection) == []
        for table in source_catalogue.copied_tables():
            assert connection.execute(build_select(table)).fetchall() is not None
        for table in source_catalogue.measured_tables():
            for column in table.streams.values():
                connection.execute(build_stream_id_counts(table, column)).fetchall()


def test_a_role_with_the_printed_rights_suffices(
    release_database: tuple[Release, set[str], str], settings: Settings
) -> None:
    declared, (_, _, dsn) = catalogue.load_catalogue(), release_database
    script = build_grants_sql(declared, Settings(_env_file=None), "release_reader")
    with psycopg.connect(dsn) as owner:
        owner.execute(script.encode())
        owner.execute("alter role release_reader password 'reader'")
        owner.commit()
    reader = psycopg.conninfo.make_conninfo(dsn, user="release_reader", password="reader")
    source = settings.model_copy(update={"synapse_dsn": reader, "synapse_server_name": "synapse.example"})
    try:
        with export_snapshot(source, declared) as (connection, _):
            for table in read_source_catalogue(declared, connection).copied_tables():
                connection.execute(build_select(table)).fetchall()
    finally:
        with psycopg.connect(dsn) as owner:
            owner.execute("drop owned by release_reader")
            owner.execute("drop role release_reader")
