"""Faults in the source are found on the branch: nothing is published, and readers keep the previous release."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from tests.conftest import PublishedLake

FAULTS = """
drop index events_stream_ordering cascade;
update events set stream_ordering = (select max(stream_ordering) from events)
 where event_id = (select event_id from events where stream_ordering > 0 order by stream_ordering limit 1);
alter table rooms drop constraint rooms_pkey cascade;
alter table rooms alter column room_id drop not null;
update rooms set room_id = null where room_id = (select room_id from rooms order by room_id limit 1);
drop index erased_users_user;
insert into erased_users select user_id from erased_users limit 1;
"""
"""Two events with the same stream ID, a room without a key, and a duplicate key."""


@pytest.fixture
def with_faults(published: PublishedLake) -> Iterator[PublishedLake]:
    """Add faults to the published lake's source, and yield the lake; afterwards, restore the source."""
    source, spare = sql.Identifier(str(conninfo_to_dict(published.source.owner)["dbname"])), sql.Identifier("spare")
    with psycopg.connect(make_conninfo(published.source.owner, dbname="postgres"), autocommit=True) as server:
        server.execute(sql.SQL("create database {} template {}").format(spare, source))
        with psycopg.connect(published.source.owner, autocommit=True) as connection:
            connection.execute(FAULTS.encode())
        yield published
        server.execute(sql.SQL("drop database {} with (force)").format(source))
        server.execute(sql.SQL("alter database {} rename to {}").format(spare, source))


def test_faults_are_found_and_readers_keep_the_release(with_faults: PublishedLake) -> None:
    published = with_faults
    before = json.loads(published.lakehouse("query", "from audit.releases", "--format", "json").stdout)
    events = published.lakehouse("query", "select count(*) as n from gold.events", "--format", "json").stdout

    result = published.lakehouse("run")

    assert result.returncode == 1
    for fault in ("stream events", "bronze.rooms", "bronze.erased_users"):
        assert fault in result.stdout + result.stderr
    after = json.loads(published.lakehouse("query", "from audit.releases", "--format", "json").stdout)
    assert after == before
    assert published.lakehouse("query", "select count(*) as n from gold.events", "--format", "json").stdout == events

    remaining = json.loads(published.lakehouse("branches", "--format", "json").stdout)
    assert len(remaining) == 1
    name = remaining[0]["branch"]
    assert name in published.lakehouse("branches", "drop", name).stdout
    assert json.loads(published.lakehouse("branches", "--format", "json").stdout) == []


def test_main_of_every_table_is_at_the_release(published: PublishedLake) -> None:
    with duckdb_reader.open_duckdb(published.settings) as connection:
        release = duckdb_reader.get_release(connection, published.settings)
        for name, snapshot in release.tables.items():
            location = list_catalog_entries(published.settings)[name].location
            assert duckdb_reader.read_metadata(connection, location)["current-snapshot-id"] == snapshot, name
    assert Path(published.settings.warehouse.removeprefix("file://")).is_dir()
