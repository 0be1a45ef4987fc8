"""The oldest and the newest supported version of PostgreSQL are read like the embedded version."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write.tables import get_arrow_schema
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.access import public_rights
from synapse_lakehouse.postgres.connection import build_conninfo, connect
from synapse_lakehouse.postgres.relation_sizes import read_relation_sizes
from synapse_lakehouse.postgres.rows.copy_to_parquet import ReadChunk, copy_chunks
from tests.conftest import lake_maker
from tests.support.incremental_lake import open_incremental_lake
from tests.support.postgres_builds import server_of_version
from tests.support.reader_role import create_role
from tests.support.small_lake import SmallLake

READER = "reader"


class OtherServer(NamedTuple):
    lake: SmallLake
    owner: psycopg.Connection[tuple[object, ...]]
    """A superuser's session, in which foreign keys have no effect."""
    server: EmbeddedServer
    version: str


MIDDLE_VERSIONS = [pytest.param(version, marks=pytest.mark.heavy) for version in ("15.18.0", "17.10.0")]
VERSIONS = ["14.23.0", *MIDDLE_VERSIONS, "18.4.0"]
"""Other tests use the embedded server, which has version 16."""


@pytest.fixture(scope="module", params=VERSIONS)
def other(
    request: pytest.FixtureRequest, server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OtherServer]:
    """Yield a lake, whose source is in a server of another version, and a session of the source's owner."""
    with (
        server_of_version(request.param) as running,
        lake_maker(server, settings, tmp_path_factory.mktemp("postgres")) as new_lake,
    ):
        dsn = sample.restore_sample(running)
        create_role(settings, READER, dsn)
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute(f"alter role {READER} password 'p'".encode())
            owner.execute("set session_replication_role = replica")
            lake_settings = new_lake(synapse_dsn=make_conninfo(dsn, user=READER, password="p"))
            with open_incremental_lake(lake_settings) as lake:
                yield OtherServer(SmallLake(lake.settings), owner, running, request.param)


def test_the_source_is_copied_and_so_are_its_changes(other: OtherServer) -> None:
    lake, source, server, version = other
    assert server.tool("postgres", "--version", stdout=-1).stdout.decode().split()[-1] == version.removesuffix(".0")
    assert {row["extent"] for row in lake.advance().values()} == {"full"}
    assert lake.compare_with_source() == {}

    source.execute("update events set outlier = not outlier where stream_ordering % 50 = 0")
    source.execute("update event_json set json = '{}' where event_id in (select event_id from events limit 20)")
    # Unreadable texts: hexadecimal, truncated, nested too deeply for the server's stack; and JSON that is no object.
    texts = ("\\x7b", '{"soft_failed": tru', '{"soft_failed": ' + "[" * 50_000, "[7]")
    for number, text in enumerate(texts):
        source.execute(
            "update event_json set internal_metadata = %s where event_id = (select event_id from events"
            " where stream_ordering %% 50 = 1 order by event_id offset %s limit 1)", [text, number],
        )  # fmt: skip
    source.execute("update receipts_linearized set data = '\\x7b' where stream_id % 50 = 1")
    source.execute("insert into rejections select event_id, 'why', 'now' from events limit 3")
    source.execute("delete from event_edges where event_id in (select event_id from events limit 30)")
    source.execute("truncate erased_users")
    source.execute("vacuum (full) room_memberships")
    source.execute(f"alter role {READER} set log_statement = 'all'".encode())
    log_size = server.log.stat().st_size
    ledger = lake.advance()
    assert lake.compare_with_source() == {}
    assert {name for name, row in ledger.items() if row["extent"] != "none"} == {
        "events", "event_json", "rejections", "event_edges", "erased_users", "receipts_linearized",
    }  # fmt: skip
    assert 0 < ledger["events"]["rows_read"] < 0.1 * ledger["events"]["rows_source"]
    assert ledger["event_edges"]["rows_read"] == 0
    statements = server.log.read_text()[log_size:]
    # The scan for changed rows counts all rows too.
    assert "pg_stat_get_xact_tuples_returned" in statements
    assert 'count(*) from "events"' not in statements

    assert {row["extent"] for row in lake.advance().values()} == {"none"}


@pytest.mark.heavy
def test_contents_are_compared(other: OtherServer) -> None:
    lake, *_ = other
    app = lake.app()
    lake.copy(app)
    rows = lake.verify(app)
    assert {row["table_name"] for row in rows} == {table.name for table in lake.declared.copied_tables()}
    assert {row["differing"] for row in rows} == {0}


def test_relations_are_measured(other: OtherServer) -> None:
    sizes = {size.name: size for size in read_relation_sizes(other.lake.settings)}
    events = sizes["events"]
    assert (events.bytes or 0) > (events.index_bytes or 0) > 0
    assert (events.vacuum_threshold or 0) >= 50
    assert events.freeze_max_age == 200_000_000


OTHER_TIMEOUTS = {"tcp_user_timeout", "wal_sender_timeout", "deadlock_timeout"}
"""Timeouts that end no session, statement or transaction of a live client."""


def test_no_timeout_of_the_server_ends_a_copy(other: OtherServer, tmp_path: Path) -> None:
    settings, (name, dsn) = other.lake.settings, (READER, other.server.dsn(str(other.owner.info.dbname)))
    with psycopg.connect(dsn, autocommit=True) as owner:
        timeouts = {
            timeout
            for (timeout,) in owner.execute(
                "select name from pg_settings where name like '%timeout' and context in ('user', 'superuser')"
            )
        } - OTHER_TIMEOUTS
        assert {"statement_timeout", "lock_timeout", "idle_session_timeout"} < timeouts
        for timeout in timeouts:
            owner.execute(f"alter role {name} set {timeout} = '700ms'".encode())
        try:
            with connect(settings) as connection:
                (snapshot,) = connection.execute("select pg_export_snapshot()").fetchone() or ("",)
                sleeping = ReadChunk(
                    build_conninfo(settings), str(snapshot), "select pg_sleep(1)::text as user_id",
                    get_arrow_schema(other.lake.declared.table("erased_users")), (), tmp_path.as_uri(), {},
                )  # fmt: skip
                assert [chunk.rows for chunk in copy_chunks([sleeping])] == [1]
                time.sleep(1)
                assert connection.execute("select 1").fetchone() == (1,)
                sources = dict(connection.execute("select name, source from pg_settings where name = any(%s)",
                                               [list(timeouts)]).fetchall())  # fmt: skip
                assert set(sources.values()) <= {"client", "session"}
        finally:
            owner.execute(f"alter role {name} reset all".encode())


def test_the_doctor_warns_of_old_public_rights(other: OtherServer) -> None:
    lake, *_, version = other
    result = lake.run_command("doctor")
    assert result.exit_code == 0, result.stdout
    # Before version 15, every role can create tables in a new database.
    assert ("has CREATE on schema public" in result.stdout) is version.startswith("14.")
    assert "may create temporary tables and create large objects and write messages" in join_lines(result.stdout)
    other.owner.execute(public_rights.build_hardening_sql(READER).encode())
    result = lake.run_command("doctor")
    assert result.exit_code == 0, result.stdout
    assert "temporary tables" not in result.stdout


def join_lines(text: str) -> str:
    """Return the text of a table without line breaks."""
    return " ".join(text.split())
