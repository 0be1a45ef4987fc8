"""An unsuitable source is refused before it is read, with a message that names the remedy."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer, find_free_port
from synapse_lakehouse.postgres.access import preflight
from synapse_lakehouse.postgres.connection import connect
from synapse_lakehouse.postgres.errors import ReadError, SourceError
from synapse_lakehouse.postgres.live_stream_positions import read_live_positions
from synapse_lakehouse.postgres.recent_reports import read_recent_reports
from synapse_lakehouse.postgres.relation_sizes import read_relation_sizes
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader

READERS = (
    read_relation_sizes,
    lambda settings: read_live_positions(settings, catalogue.load_catalogue(), lambda *_: None),
    lambda settings: read_recent_reports(settings, catalogue.load_catalogue(), datetime(2026, 11, 17, tzinfo=UTC)),
    lambda settings: DatabaseReader(settings, catalogue.load_catalogue()).read_positions(),
)


def check(settings: Settings, **changes: object) -> int:
    changed = settings.model_copy(update=changes)
    with connect(changed) as connection:
        declared, name = catalogue.load_catalogue(), str(changed.synapse_server_name)
        return preflight.check_source_database(connection, declared, name).version


@pytest.fixture
def owner(source_copy: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(source_copy, autocommit=True) as connection:
        yield connection


def test_the_sample_passes(settings: Settings) -> None:
    assert check(settings) == catalogue.load_catalogue().newest_schema_version


def test_an_unreachable_source_is_refused(settings: Settings) -> None:
    dsn = f"postgresql://synapse:secret-word@127.0.0.1:{find_free_port()}/synapse"
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:") as error:
        check(settings, synapse_dsn=dsn)
    assert "secret-word" not in str(error.value)


def test_a_wrong_password_is_refused(settings: Settings) -> None:
    with pytest.raises(SourceError, match="synapse_sample") as error:
        check(settings, synapse_dsn=make_conninfo(str(settings.synapse_dsn), password="secret-word"))
    assert "secret-word" not in str(error.value)


def test_a_missing_database_is_refused(settings: Settings, server: EmbeddedServer) -> None:
    with pytest.raises(SourceError, match="no_such_database"):
        check(settings, synapse_dsn=server.dsn("no_such_database"))


def test_an_invalid_connection_string_is_refused(settings: Settings) -> None:
    with pytest.raises(SourceError, match="SYNAPSE_DSN"):
        check(settings, synapse_dsn="synapse database, please")


def test_server_name_is_needed(settings: Settings) -> None:
    with pytest.raises(SourceError, match="SYNAPSE_SERVER_NAME"):
        check(settings, synapse_server_name=None)


def test_the_name_of_another_homeserver_is_refused(settings: Settings) -> None:
    with pytest.raises(SourceError, match=r"other\.example"):
        check(settings, synapse_server_name="other.example")


@pytest.mark.parametrize(
    "change",
    [
        "set session_replication_role = replica; update users set name = replace(name, ':synapse.', ':other.')",
        "truncate users cascade; update local_current_membership set user_id = replace(user_id, ':', ':old.')",
    ],
    ids=["accounts", "members without accounts"],
)
def test_a_server_name_without_local_users_is_refused(
    settings: Settings, source_copy: str, owner: psycopg.Connection[tuple[object, ...]], change: str
) -> None:
    owner.execute(change.encode())
    with pytest.raises(SourceError, match=r"(other|old\.synapse)\.example.* SYNAPSE_SERVER_NAME"):
        check(settings, synapse_dsn=source_copy)


@pytest.mark.parametrize("read", READERS)
def test_each_reader_refuses_the_database_of_another_homeserver(
    settings: Settings, read: Callable[[Settings], object]
) -> None:
    assert read(settings) is not None
    with pytest.raises(SourceError, match=r"SYNAPSE_SERVER_NAME is other\.example"):
        read(settings.model_copy(update={"synapse_server_name": "other.example"}))


def test_an_odd_account_is_no_fault(
    settings: Settings, source_copy: str, owner: psycopg.Connection[tuple[object, ...]]
) -> None:
    owner.execute("insert into users (name, creation_ts) values ('@first:other.example', 0)")
    assert check(settings, synapse_dsn=source_copy)


def test_a_database_without_users_is_no_fault(
    settings: Settings, source_copy: str, owner: psycopg.Connection[tuple[object, ...]]
) -> None:
    owner.execute("truncate users, local_current_membership cascade")
    assert check(settings, synapse_dsn=source_copy)


def test_a_database_without_synapse_is_refused(settings: Settings, server: EmbeddedServer) -> None:
    with pytest.raises(SourceError, match=r"database postgres .*schema_version"):
        check(settings, synapse_dsn=server.dsn("postgres"))


def test_a_missing_state_database_is_refused(
    settings: Settings, source_copy: str, owner: psycopg.Connection[tuple[object, ...]]
) -> None:
    owner.execute("alter table events rename to whole")
    with pytest.raises(SourceError, match="SYNAPSE_STATE_DSN"):
        check(settings, synapse_dsn=source_copy)
    owner.execute("drop table state_groups, state_group_edges, state_groups_state cascade")
    with pytest.raises(SourceError, match="schema_version"):
        check(settings, synapse_dsn=source_copy)
    owner.execute("alter table whole rename to events")
    missing = "state_groups, state_group_edges, state_groups_state"
    with pytest.raises(SourceError, match=f"{missing}.*SYNAPSE_STATE_DSN"):
        check(settings, synapse_dsn=source_copy)


NOT_PLAIN = {
    "event_json": """create foreign data wrapper afar; create server remote foreign data wrapper afar;
        alter table event_json rename to whole_json;
        create table event_json (like whole_json) partition by hash (event_id);
        create table event_json_p0 partition of event_json for values with (modulus 2, remainder 0);
        create foreign table event_json_p1 partition of event_json for values with (modulus 2, remainder 1)
        server remote; drop table whole_json cascade""",
    "rooms": "alter table rooms rename to whole_rooms; create view rooms as select * from whole_rooms",
    "room_depth": """alter table room_depth rename to whole_depth;
        create materialized view room_depth as select * from whole_depth""",
    "erased_users": """create foreign data wrapper elsewhere; create server other foreign data wrapper elsewhere;
        alter table erased_users rename to whole; create foreign table erased_users (user_id text not null)
        server other""",
    "rejections": "create table more () inherits (rejections)",
}
KINDS = {
    "event_json": "a partitioned table with a partition that is no plain table", "rooms": "a view",
    "room_depth": "a materialized view",
    "erased_users": "a foreign table", "rejections": "a table that others inherit from",
}  # fmt: skip


def test_tables_that_are_not_plain_are_named(
    settings: Settings, source_copy: str, owner: psycopg.Connection[tuple[object, ...]]
) -> None:
    for change in NOT_PLAIN.values():
        owner.execute(change.encode())
    with pytest.raises(SourceError) as error:
        check(settings, synapse_dsn=source_copy)
    kinds = dict(line.split(" is ", 1) for line in str(error.value).splitlines())
    assert {table: kind.partition(".")[0] for table, kind in kinds.items()} == KINDS
    partial_settings = settings.model_copy(update={"synapse_dsn": source_copy, "lakehouse_on_drift": "partial"})
    with export_snapshot(partial_settings, catalogue.load_catalogue()) as (_, snapshot):
        assert set(snapshot.drifted_tables) == set(KINDS)
        assert not {name for name in snapshot.unknown_objects if name.startswith("event_json_p")}


@pytest.mark.parametrize(
    ("version", "compat_version", "change", "expected"),
    [
        (87, 84, "select 1", r"version 87\b.*needs Synapse 1\.120\b"),
        (999, 999, "select 1", r"version 999\b.*upgrade the lakehouse"),
        (999, 94, "alter table events drop column depth", r"version 999\b.*events\.depth"),
        (999, 94, "drop table profile_updates cascade; delete from applied_schema_deltas", "lacks.*profile_updates"),
    ],
)
def test_an_unsupported_schema_is_refused_in_one_sentence(
    settings: Settings,
    source_copy: str,
    owner: psycopg.Connection[tuple[object, ...]],
    version: int,
    compat_version: int,
    change: str,
    expected: str,
) -> None:
    owner.execute("update schema_version set version = %s", [version])
    owner.execute("update schema_compat_version set compat_version = %s", [compat_version])
    owner.execute(change.encode())
    with pytest.raises(SourceError, match=expected) as error:
        check(settings, synapse_dsn=source_copy)
    assert str(error.value).count(". ") + str(error.value).count("\n") == 0


def test_a_later_compatible_schema_version_passes(
    settings: Settings, source_copy: str, owner: psycopg.Connection[tuple[object, ...]]
) -> None:
    owner.execute("update schema_version set version = 999")
    owner.execute("update schema_compat_version set compat_version = 94")
    assert check(settings, synapse_dsn=source_copy) == 999


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("drop table erased_users cascade", "erased_users"),
        ("drop table profile_updates cascade", "profile_updates"),
        ("alter table redactions drop column recheck", r"redactions.*recheck"),
        ("alter table events drop column received_ts cascade", r"events.*received_ts"),
        ("alter table room_depth alter column min_depth type text", r"room_depth.*min_depth"),
        ("drop sequence receipts_sequence cascade", "receipts_sequence"),
    ],
)
def test_departures_from_the_catalogue_are_named(
    settings: Settings, source_copy: str, owner: psycopg.Connection[tuple[object, ...]], change: str, reported: str
) -> None:
    owner.execute(change)
    with pytest.raises(SourceError, match=reported):
        check(settings, synapse_dsn=source_copy)


def test_missing_right_is_reported_with_its_grant(
    settings: Settings, source_copy: str, owner: psycopg.Connection[tuple[object, ...]]
) -> None:
    owner.execute("create role lake_reader login password 'reader'")
    try:
        owner.execute("grant select on all tables in schema public to lake_reader")
        owner.execute("grant select on all sequences in schema public to lake_reader")
        dsn = make_conninfo(source_copy, user="lake_reader", password="reader")
        assert check(settings, synapse_dsn=dsn)
        owner.execute("revoke select on redactions from lake_reader")
        owner.execute("revoke select on sequence receipts_sequence from lake_reader")
        with pytest.raises(SourceError) as error:
            check(settings, synapse_dsn=dsn)
        grants = [line.partition("run: ")[2] for line in str(error.value).splitlines()]
        assert any("redactions" in grant for grant in grants)
        assert any("receipts_sequence" in grant for grant in grants)
        for grant in grants:
            owner.execute(grant.encode())
        assert check(settings, synapse_dsn=dsn)
    finally:
        owner.execute("drop owned by lake_reader")
        owner.execute("drop role lake_reader")


def test_the_connection_cannot_write(settings: Settings) -> None:
    with connect(settings) as connection, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        connection.execute("update users set admin = 1")


def test_a_lost_connection_is_an_expected_error(settings: Settings, owner: psycopg.Connection[Any]) -> None:
    def read(statement: str, *, is_lost: bool = False) -> None:
        with connect(settings) as connection:
            if is_lost:
                owner.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])
            connection.execute(statement.encode())

    for failing in (partial(read, "select 1", is_lost=True), partial(read, "select 'secret'::int")):
        with pytest.raises(ReadError) as error:
            failing()
        assert error.value.is_transient
        assert "\n" not in str(error.value)
