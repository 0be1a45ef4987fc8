"""A source that cannot be copied is refused before anything is read, with a message that says what to do."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from synapse_lakehouse import catalogue
from synapse_lakehouse.embedded.postgres import Server, free_port
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source import preflight
from synapse_lakehouse.source.connection import connect
from synapse_lakehouse.source.errors import SourceError


def check(settings: Settings, **changes: object) -> int:
    changed = settings.model_copy(update=changes)
    with connect(changed) as connection:
        return preflight.check(connection, catalogue.load(), str(changed.synapse_server_name))


@pytest.fixture
def spoiled(source_copy: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(source_copy, autocommit=True) as connection:
        yield connection


def test_the_sample_passes(settings: Settings) -> None:
    assert check(settings) == catalogue.load().newest_schema_version


def test_unreachable(settings: Settings) -> None:
    dsn = f"postgresql://synapse:secret-word@127.0.0.1:{free_port()}/synapse"
    with pytest.raises(SourceError, match="cannot be reached") as caught:
        check(settings, synapse_dsn=dsn)
    assert "secret-word" not in str(caught.value)


def test_wrong_password(settings: Settings) -> None:
    with pytest.raises(SourceError, match="password for postgres is wrong") as caught:
        check(settings, synapse_dsn=make_conninfo(str(settings.synapse_dsn), password="secret-word"))
    assert "secret-word" not in str(caught.value)


def test_no_such_database(settings: Settings, server: Server) -> None:
    with pytest.raises(SourceError, match="Correct its name in SYNAPSE_DSN"):
        check(settings, synapse_dsn=server.dsn("no_such_database"))


def test_not_a_connection_string(settings: Settings) -> None:
    with pytest.raises(SourceError, match="not a PostgreSQL connection string"):
        check(settings, synapse_dsn="synapse database, please")


def test_server_name_is_needed(settings: Settings) -> None:
    with pytest.raises(SourceError, match="SYNAPSE_DSN and SYNAPSE_SERVER_NAME belong together"):
        check(settings, synapse_server_name=None)


def test_server_name_of_another_homeserver(settings: Settings) -> None:
    with pytest.raises(SourceError, match=r"SYNAPSE_SERVER_NAME is other\.example"):
        check(settings, synapse_server_name="other.example")


@pytest.mark.parametrize(
    "change",
    [
        "set session_replication_role = replica; update users set name = replace(name, ':synapse.', ':other.')",
        "truncate users cascade; update local_current_membership set user_id = replace(user_id, ':', ':old.')",
    ],
    ids=["accounts", "members without accounts"],
)
def test_server_name_that_is_nobody_s(
    settings: Settings, source_copy: str, spoiled: psycopg.Connection[tuple[object, ...]], change: str
) -> None:
    spoiled.execute(change.encode())
    with pytest.raises(
        SourceError, match=r"belong to (other|old\.synapse)\.example, but SYNAPSE_SERVER_NAME is synapse"
    ):
        check(settings, synapse_dsn=source_copy)


def test_an_odd_account_is_no_fault(
    settings: Settings, source_copy: str, spoiled: psycopg.Connection[tuple[object, ...]]
) -> None:
    spoiled.execute("insert into users (name, creation_ts) values ('@first:other.example', 0)")
    assert check(settings, synapse_dsn=source_copy)


def test_nobody_is_no_fault(
    settings: Settings, source_copy: str, spoiled: psycopg.Connection[tuple[object, ...]]
) -> None:
    spoiled.execute("truncate users, local_current_membership cascade")
    assert check(settings, synapse_dsn=source_copy)


def test_not_a_synapse_database(settings: Settings, server: Server) -> None:
    with pytest.raises(SourceError, match="The database postgres is not a Synapse homeserver's"):
        check(settings, synapse_dsn=server.dsn("postgres"))


@pytest.mark.parametrize(("version", "advice"), [(72, "Upgrade Synapse"), (999, "Upgrade the lakehouse")])
def test_unsupported_schema_version(
    settings: Settings, source_copy: str, spoiled: psycopg.Connection[tuple[object, ...]], version: int, advice: str
) -> None:
    spoiled.execute("update schema_version set version = %s", [version])
    with pytest.raises(SourceError, match=rf"version {version}; versions \d+ to \d+ are supported.*{advice}"):
        check(settings, synapse_dsn=source_copy)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("drop table erased_users cascade", "erased_users"),
        ("alter table events drop column received_ts cascade", r"events.*received_ts"),
        ("alter table room_depth alter column min_depth type text", r"room_depth.*min_depth"),
        ("drop sequence receipts_sequence cascade", "receipts_sequence"),
    ],
)
def test_departures_from_the_catalogue_are_named(
    settings: Settings, source_copy: str, spoiled: psycopg.Connection[tuple[object, ...]], change: str, named: str
) -> None:
    spoiled.execute(change)
    with pytest.raises(SourceError, match=named):
        check(settings, synapse_dsn=source_copy)


def test_a_missing_right_comes_with_the_grant_that_mends_it(
    settings: Settings, source_copy: str, spoiled: psycopg.Connection[tuple[object, ...]]
) -> None:
    spoiled.execute("create role lake_reader login password 'reader'")
    try:
        spoiled.execute("grant select on all tables in schema public to lake_reader")
        spoiled.execute("grant select on all sequences in schema public to lake_reader")
        dsn = make_conninfo(source_copy, user="lake_reader", password="reader")
        assert check(settings, synapse_dsn=dsn)
        spoiled.execute("revoke select on redactions from lake_reader")
        spoiled.execute("revoke select on sequence receipts_sequence from lake_reader")
        with pytest.raises(SourceError) as caught:
            check(settings, synapse_dsn=dsn)
        grants = [line.partition("run: ")[2] for line in str(caught.value).splitlines()]
        assert any("redactions" in grant for grant in grants)
        assert any("receipts_sequence" in grant for grant in grants)
        for grant in grants:
            spoiled.execute(grant.encode())
        assert check(settings, synapse_dsn=dsn)
    finally:
        spoiled.execute("drop owned by lake_reader")
        spoiled.execute("drop role lake_reader")


def test_the_connection_cannot_write(settings: Settings) -> None:
    with connect(settings) as connection, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        connection.execute("update users set admin = 1")
