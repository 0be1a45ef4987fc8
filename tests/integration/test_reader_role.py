"""The role of ``lakehouse grants`` can read the columns of the catalogue and do nothing else."""

import re
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from synapse_lakehouse import catalogue
from synapse_lakehouse.cli.doctor.excess_privileges import examine, reader_privileges
from synapse_lakehouse.cli.doctor.finding import FindingLevel
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.access.grants import SYSTEM_COLUMNS, list_allowed_grants
from synapse_lakehouse.postgres.rows.select_sql import build_select, build_stream_id_counts
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from synapse_lakehouse.replication.server.stream_reader import DatabaseReader
from tests.conftest import copied_source, lakehouse
from tests.support.reader_role import Role, create_role, reader_role, run_script

Session = psycopg.Connection[tuple[object, ...]]
RightsError = psycopg.errors.InsufficientPrivilege
SECRET = {
    "access_tokens": "token", "users": "password_hash", "devices": "ip", "pushers": "pushkey",
    "presence_stream": "status_msg", "event_reports": "content", "room_account_data": "content",
    "e2e_device_keys_json": "key_json", "user_threepids": "address", "registration_tokens": "token",
    "device_inbox": "message_json", "user_ips": "ip", "cache_invalidation_stream_by_instance": "keys",
}  # fmt: skip
"""Columns that must never be readable, by table."""


@pytest.fixture(scope="module")
def database(server: EmbeddedServer, sample_dsn: str) -> Iterator[str]:
    """Yield the URI of a copy of the sample that these tests share."""
    with copied_source(server) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def role(settings: Settings, database: str) -> Iterator[Role]:
    with reader_role(settings, database) as role:
        yield role


@pytest.fixture
def session(role: Role) -> Iterator[Session]:
    """Yield a session of the role that is not read-only, so that only rights stop a write."""
    with psycopg.connect(role.dsn, autocommit=True) as connection:
        connection.execute("set default_transaction_read_only = off")
        yield connection


@pytest.fixture(scope="module")
def columns(database: str) -> dict[str, list[str]]:
    """Return the columns of every table of the database."""
    query = (
        "select table_name::text, array_agg(column_name::text order by ordinal_position)"
        " from information_schema.columns where table_schema = 'public' group by 1"
    )
    with psycopg.connect(database) as owner:
        return dict(owner.execute(query).fetchall())


def test_the_role_can_export_a_snapshot_and_read_all(settings: Settings, role: Role) -> None:
    declared = catalogue.load_catalogue()
    with export_snapshot(settings.model_copy(update={"synapse_dsn": role.dsn}), declared) as (connection, snapshot):
        assert len(snapshot.sequences) == len(declared.streams)
        for table in declared.copied_tables():
            connection.execute(build_select(table, (0, 100), since=3))
            connection.execute(build_select(table))
        for table in declared.measured_tables():
            for column in table.streams.values():
                connection.execute(build_stream_id_counts(table, column))


def test_the_role_can_write_to_no_table(session: Session, columns: dict[str, list[str]]) -> None:
    assert len(columns) > 150
    for name, (*_, column) in columns.items():
        for statement in (
            "insert into {table} default values",
            "update {table} set {column} = {column}",
            "update {table} set {column} = null where false",
            "delete from {table}",
            "truncate {table}",
            "alter table {table} add column extra int",
            "alter table {table} drop column {column}",
            "create index on {table} ({column})",
            "create rule r as on insert to {table} do nothing",
            "select from {table} for update",
            "drop table {table}",
        ):
            with pytest.raises(RightsError):
                session.execute(sql.SQL(statement).format(table=sql.Identifier(name), column=sql.Identifier(column)))


def test_the_role_can_create_and_advance_nothing(session: Session, role: Role, database: str) -> None:
    with psycopg.connect(database) as owner:
        sequences = [name for (name,) in owner.execute("select sequencename from pg_sequences")]
    statements = [f"select nextval('{name}')" for name in sequences]
    statements += [f"select setval('{name}', 1)" for name in sequences]
    statements += ["create table public.mine (id int)", "create view public.mine as select 1", "create schema mine"]
    statements += ["create role mine", f"alter role {role.name} superuser", "copy (select 1) to program 'true'"]
    statements += ["select pg_read_file('postgresql.conf')", "alter system set work_mem = '1GB'"]
    for statement in statements:
        with pytest.raises(RightsError):
            session.execute(statement.encode())


def test_sessions_are_read_only_and_have_timeouts(role: Role) -> None:
    with psycopg.connect(role.dsn, autocommit=True) as plain:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            plain.execute("create temporary table mine (id int)")
        for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            (value,) = plain.execute(sql.SQL("show {}").format(sql.Identifier(name))).fetchone() or ("0",)
            assert value != "0"


def test_the_role_can_read_exactly_the_catalogued_columns(session: Session, columns: dict[str, list[str]]) -> None:
    rights = list_allowed_grants(catalogue.load_catalogue(), has_secrets=False)
    granted_columns = {right.name: set(right.columns) for right in rights if right.kind == "table"}
    for name, names in columns.items():
        table = sql.Identifier(name)
        for column in [*names, *SYSTEM_COLUMNS]:
            query = sql.SQL("select {} from {} limit 1").format(sql.Identifier(column), table)
            if column in granted_columns.get(name, ()):
                session.execute(query)
            else:
                with pytest.raises(RightsError):
                    session.execute(query)
        if set(names) - granted_columns.get(name, set()):
            for statement in ("select * from {} limit 1", "select t from {} as t limit 1", "copy {} to stdout"):
                with pytest.raises(RightsError):
                    session.execute(sql.SQL(statement).format(table))
        if name not in granted_columns:
            with pytest.raises(RightsError):
                session.execute(sql.SQL("select count(*) from {}").format(table))


@pytest.mark.parametrize(("table", "column"), SECRET.items())
def test_secrets_cannot_be_read(session: Session, table: str, column: str) -> None:
    with pytest.raises(RightsError):
        session.execute(sql.SQL("select {} from {}").format(sql.Identifier(column), sql.Identifier(table)))


def test_a_rerun_of_the_script_revokes_other_rights(
    settings: Settings, role: Role, database: str, session: Session
) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"grant select, insert on all tables in schema public to {role.name}".encode())
        owner.execute(f"grant select (password_hash) on users to {role.name}".encode())
    session.execute("select password_hash from users")
    create_role(settings, role.name, database)
    with pytest.raises(RightsError):
        session.execute("select password_hash from users")
    session.execute("select name, xmin from users")


PUBLIC_RIGHTS = (
    "create temporary table mine (id int)", "select lo_create(0)", "select lo_creat(-1)", "select lo_from_bytea(0, '')",
    "select pg_logical_emit_message(false, 'a', 'b')", "select pg_logical_emit_message(true, 'a', 'b'::bytea)",
)  # fmt: skip
PURGE = (
    "create temporary table events_to_purge (event_id text not null, should_delete boolean not null)",
    "insert into events_to_purge select event_id, true from events where false",
    "delete from event_edges where event_id in (select event_id from events_to_purge)",
    "drop table events_to_purge",
)
"""Statements that Synapse runs with its own role (``synapse.storage.databases.main.purge_events``)."""


def test_hardening_stops_the_role_and_not_synapse(
    settings: Settings, role: Role, database: str, session: Session
) -> None:
    synapse = f"synapse_{uuid.uuid4().hex[:8]}"
    for statement in PUBLIC_RIGHTS:
        with session.transaction(force_rollback=True):
            session.execute(statement.encode())
    with psycopg.connect(database, autocommit=True) as owner:
        before = owner.execute("select datname, datacl from pg_database where datname <> current_database()").fetchall()
        owner.execute(f"create role {synapse} login password 'p'".encode())
        owner.execute(f"grant create, usage on schema public to {synapse}".encode())
        tables = [name for (name,) in owner.execute("select tablename from pg_tables where schemaname = 'public'")]
        owner.execute("create table state_compressor_state (room_id text)")
        owner.execute(sql.SQL("alter table state_compressor_state owner to {}").format(sql.Identifier(role.name)))
        try:
            for table in tables:
                owner.execute(sql.SQL("alter table {} owner to {}").format(*map(sql.Identifier, (table, synapse))))
            for _ in range(2):
                run_script(settings, database, "grants", "--harden", "--role", role.name)
            for statement in PUBLIC_RIGHTS:
                with pytest.raises(RightsError):
                    session.execute(statement.encode())
            with psycopg.connect(make_conninfo(database, user=synapse, password="p")) as synapse_session:
                for statement in PURGE:
                    synapse_session.execute(statement.encode())
            with export_snapshot(settings.model_copy(update={"synapse_dsn": role.dsn}), catalogue.load_catalogue()) as (
                reader,
                _,
            ):
                reader.execute(build_select(catalogue.load_catalogue().table("events")))
            after = owner.execute("select datname, datacl from pg_database where datname <> current_database()")
            assert after.fetchall() == before
        finally:
            owner.execute("drop table state_compressor_state")
            owner.execute(f"reassign owned by {synapse} to postgres; drop owned by {synapse}".encode())
            owner.execute(f"drop role {synapse}".encode())


def test_a_security_definer_function_is_reported(role: Role, database: str) -> None:
    def list_warnings() -> list[str]:
        with psycopg.connect(role.dsn, autocommit=True) as session:
            findings = examine(session, reader_privileges(catalogue.load_catalogue()), "lakehouse grants")
            return [finding.advice for finding in findings if "SECURITY DEFINER" in finding.message]

    assert list_warnings() == []
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "create function leak(int) returns text security definer language sql as 'select token from access_tokens'"
        )
        try:
            (advice,) = list_warnings()
            owner.execute(advice.partition("As the owner run: ")[2].partition(";")[0].encode())
            assert list_warnings() == []
        finally:
            owner.execute("drop function leak")


def test_rights_on_the_system_and_by_default_are_reported(role: Role, database: str) -> None:
    def list_warnings() -> dict[str, str]:
        with psycopg.connect(role.dsn, autocommit=True) as session:
            findings = list(examine(session, reader_privileges(catalogue.load_catalogue()), "lakehouse grants"))
            return {finding.message: finding.advice for finding in findings if finding.level is FindingLevel.WARN}

    before = list_warnings()
    with psycopg.connect(database, autocommit=True) as owner:
        for grant in (
            "grant execute on function pg_read_file(text) to {0}",
            "grant execute on function pg_ls_dir(text) to public",
            "grant select on pg_authid to {0}",
            "grant select (rolpassword), update (rolname) on pg_authid to public",
            "alter default privileges grant select on tables to {0}",
            "alter default privileges in schema public grant usage on sequences to public",
        ):
            owner.execute(grant.format(role.name).encode())
        after = list_warnings()
        try:
            new = {message: advice for message, advice in after.items() if message not in before}
            assert len(new) == 3
            for privilege in ("pg_read_file(text)", "pg_ls_dir(text)", "SELECT on pg_authid", "UPDATE (rolname)"):
                assert any(privilege in message for message in new), (privilege, new)
        finally:
            for advice in new.values():
                for statement in re.findall("(?:ALTER|REVOKE) [^;]*;", advice):
                    owner.execute(statement.encode())
        assert list_warnings() == before


def test_a_role_name_is_no_sql(settings: Settings) -> None:
    result = lakehouse(settings, "grants", "--role", "x; drop role postgres")
    assert result.returncode == 2
    assert "drop role" not in result.stdout


def test_the_role_can_read_every_stream(settings: Settings, role: Role) -> None:
    feed = DatabaseReader(settings.model_copy(update={"synapse_dsn": role.dsn}), catalogue.load_catalogue())
    positions = feed.read_positions()
    for stream, token in positions.last_allocated.items():
        feed.read_page((stream, None), 0, token)
    feed.close()


def test_cache_keys_need_a_right_of_their_own(settings: Settings, role: Role, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("truncate cache_invalidation_stream_by_instance")
        owner.execute("select setval('cache_invalidation_stream_seq', 2)")
        owner.execute(
            "insert into cache_invalidation_stream_by_instance values"
            " (2, 'master', 'get_user_by_id', '{@a}', 5), (1, 'master', 'get_user_by_access_token', '{syt_a}', 5)"
        )

    def rows() -> list[object]:
        feed = DatabaseReader(settings.model_copy(update={"synapse_dsn": role.dsn}), catalogue.load_catalogue())
        updates, _ = feed.read_page(("caches", None), 0, 2)
        feed.close()
        return [row for update in updates for row in update.rows]

    withheld = ["get_user_by_access_token", [None], 5]
    assert rows() == [withheld, ["get_user_by_id", [None], 5]]
    run_script(settings, database, "grants", "--role", role.name, "--cache-keys")
    assert rows() == [withheld, ["get_user_by_id", ["@a"], 5]]
    create_role(settings, role.name, database)
    assert rows() == [withheld, ["get_user_by_id", [None], 5]]
