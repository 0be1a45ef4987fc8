"""The oldest and the newest Synapse that are supported: fresh databases of both fit the catalogue and can be copied."""

from pathlib import Path

import psycopg
import pytest

from sample.environment import VENV
from sample.environment import VERSION as NEWEST
from sample.homeserver import homeserver
from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.postgres.access.schema_drift import OLDEST_SYNAPSE, find_drift, find_unknown_objects
from synapse_lakehouse.postgres.rows.select_sql import build_select, build_stream_id_counts
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("version", [OLDEST_SYNAPSE, NEWEST])
def test_a_fresh_database_fits_and_can_be_copied(version: str, tmp_path: Path) -> None:
    declared = catalogue.load_catalogue()
    venv = VENV if version == NEWEST else PROJECT_FOLDER / ".lakehouse" / f"synapse-venv-{version}"
    # Schemas are the same with workers, which need Redis, and today's client of it breaks the oldest release.
    with homeserver(tmp_path / "synapse", version=version, venv=venv, workers=version == NEWEST) as hs:
        alice = hs.register("alice", admin=True)
        room = alice.create_room(preset="public_chat")
        for process in hs.urls:
            alice.say(room, "hello", via=process)
        settings = Settings(_env_file=None, synapse_dsn=hs.dsn, synapse_server_name=hs.server_name)
        with export_snapshot(settings, declared) as (connection, snapshot):
            assert declared.oldest_schema_version <= snapshot.schema_version <= declared.newest_schema_version
            assert find_drift(declared, connection) == []
            assert find_unknown_objects(declared, connection) == []
            for table in declared.copied_tables():
                connection.execute(build_select(table)).fetchall()
            for table in declared.measured_tables():
                for column in table.streams.values():
                    connection.execute(build_stream_id_counts(table, column)).fetchall()
        with psycopg.connect(hs.dsn) as source:
            row = source.execute("select compat_version from schema_compat_version").fetchone()
        assert row is not None
        assert row[0] <= declared.oldest_schema_version
