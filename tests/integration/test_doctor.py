"""``lakehouse doctor`` on a Synapse database as it should be, and on ones that are not."""

import json
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.cli import app
from synapse_lakehouse.compressor.postgres import grants as compressor_grants
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import SCHEMAS, open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.tables import get_arrow_schema
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer, find_free_port
from synapse_lakehouse.postgres.access import preflight, public_rights
from synapse_lakehouse.postgres.access.grants import build_grants_sql
from synapse_lakehouse.postgres.connection import build_conninfo, connect
from synapse_lakehouse.postgres.errors import ReadError, SourceError
from synapse_lakehouse.postgres.rows import duplicates
from synapse_lakehouse.postgres.rows.copy_to_parquet import ReadChunk, copy_chunks
from synapse_lakehouse.postgres.rows.select_sql import build_select

Findings = dict[str, list[dict[str, str]]]
Examine = Callable[..., tuple[int, Findings]]


@pytest.fixture
def examine(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Runs the command with changed settings: its exit code, and its findings by subject."""
    monkeypatch.chdir(tmp_path)

    def run(*options: str, **changes: object) -> tuple[int, Findings]:
        environment = settings.model_copy(update=changes).to_environment()
        done = CliRunner().invoke(app, ["doctor", *options, "--format", "json"], env=environment)
        found: Findings = {}
        for one in json.loads(done.stdout):
            found.setdefault(one["subject"], []).append(one)
        return done.exit_code, found

    return run


@pytest.fixture
def reader(source_copy: str) -> Iterator[str]:
    """The copy of the source, for the role that ``lakehouse grants`` makes, hardened."""
    name = f"reader_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(build_grants_sql(catalogue.load_catalogue(), Settings(_env_file=None), name).encode())
        owner.execute(public_rights.build_hardening_sql(name).encode())
        owner.execute(f"alter role {name} password 'p'".encode())
        yield make_conninfo(source_copy, user=name, password="p")
        owner.execute(f"reassign owned by {name} to postgres; drop owned by {name}; drop role {name}".encode())


def test_all_is_well(examine: Examine) -> None:
    code, found = examine()
    assert code == 0
    assert {"Java", "jars", "catalogue", "source", "clock", "role", "schema", "drift", "rights", "disk"} <= set(found)
    assert not [one for findings in found.values() for one in findings if one["level"] == "FAIL"]


def test_what_is_no_setting_is_named_with_the_one_that_was_meant(
    examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_LEASE_SECOND", "5")
    monkeypatch.setenv("SYNAPSE_CONFIG_PATH", "/data/homeserver.yaml")
    _, found = examine()
    (strange,) = found["settings"]
    assert strange["message"].startswith("LAKEHOUSE_LEASE_SECOND ")
    assert "LAKEHOUSE_LEASE_SECONDS?" in strange["advice"]


def test_a_superuser_is_warned_of(examine: Examine, source_copy: str) -> None:
    code, found = examine(synapse_dsn=source_copy)
    assert (code, found["role"][0]["level"]) == (0, "WARN")
    assert "is a superuser" in found["role"][0]["message"]
    assert "`lakehouse grants`" in found["role"][0]["advice"]


def test_the_role_that_grants_makes_is_well(examine: Examine, reader: str) -> None:
    code, found = examine(synapse_dsn=reader)
    assert code == 0
    needed, limits = found["role"]
    assert needed["level"] == limits["level"] == "OK"
    assert needed["message"].startswith(f"{_user(reader)} ")
    assert "8 connections" in limits["message"]
    assert found["rights"][0]["level"] == "OK"


def test_missing_rights_come_with_the_grants_that_mend_them(examine: Examine, reader: str, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(f"revoke all on receipts_linearized, users, receipts_sequence from {_user(reader)}".encode())
        owner.execute(f"revoke select (xmin) on events from {_user(reader)}".encode())
        code, found = examine(synapse_dsn=reader)
        assert code == 1
        grants = [grant for one in found["rights"] for grant in re.findall(r"GRANT .*;", one["message"])]
        assert len(grants) == 4
        assert any("events (xmin)" in one["message"] for one in found["rights"])
        for grant in grants:
            owner.execute(grant.encode())
    code, found = examine(synapse_dsn=reader)
    assert (code, found["rights"][0]["level"]) == (0, "OK")


@pytest.mark.parametrize(
    ("excess", "named"),
    [
        ("alter role {role} createrole createdb", "has CREATEROLE and CREATEDB"),
        ("grant pg_read_all_data, pg_write_all_data to {role}", "pg_read_all_data, pg_write_all_data"),
        ("grant insert, update on events to {role}", "has UPDATE on table events."),
        ("grant update (content) on event_reports to {role}", "has UPDATE on table event_reports (content)."),
        ("grant truncate on all tables in schema public to public", "like every role, has TRUNCATE on table"),
        ("grant select on users to {role}", "on table users (password_hash, "),
        ("grant select (ip, user_agent) on devices to {role}", "on table devices (ip, user_agent)."),
        ("grant select on all tables in schema public to {role}", "on table access_tokens, "),
        (
            "grant select on access_tokens to public",
            "like every role, has SELECT, which it does not need, on table access_",
        ),
        ("grant usage on sequence receipts_sequence to {role}", "has USAGE on sequence receipts_sequence."),
        ("grant create on schema public to public", "like every role, has CREATE on schema public."),
        ("grant create on database {database} to {role}", "has CREATE on database"),
    ],
)
def test_what_the_role_can_do_beyond_reading_is_named_and_mended(
    examine: Examine, reader: str, source_copy: str, excess: str, named: str
) -> None:
    database = str(psycopg.conninfo.conninfo_to_dict(source_copy)["dbname"])
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(excess.format(role=_user(reader), database=database).encode())
        code, found = examine(synapse_dsn=reader)
        assert code == 0
        assert {one["level"] for one in found["role"][:-1]} == {"WARN"}
        assert any(named in one["message"] for one in found["role"]), found["role"]
        for one in found["role"]:
            for statement in re.findall(r"(?:REVOKE|ALTER) [^;]*;", one["advice"]):
                owner.execute(statement.encode())
    _, found = examine(synapse_dsn=reader)
    assert {one["level"] for one in found["role"]} == {"OK"}, found["role"]


def test_sequences_are_held_against_positions_rows_and_the_release_before(
    examine: Examine, reader: str, source_copy: str, new_lake: Callable[..., Settings]
) -> None:
    lake = new_lake()
    with open_catalog(lake) as catalog:
        for schema in SCHEMAS:
            catalog.create_namespace(schema)
        for name in ("audit.releases", "audit.stream_positions", "audit.leases"):
            catalog.create_table(name, store.AUDIT_SCHEMAS[name])
        now = datetime.now(UTC)
        run = Run("run", now - timedelta(days=1), now)
        store.append_audit_rows(catalog, "audit.releases", [{"release": 1, "tables": [], "positions": [], "views": []}
                                                 | {"published_at": now}], run)  # fmt: skip
        known = {"stream": "events", "writers": [("persister1", 4373)], "sequence_last_value": 4413}
        store.append_audit_rows(catalog, "audit.stream_positions",
                     [known | {"sequence_is_called": True, "measured_at": now}], run)  # fmt: skip
    own = {"synapse_dsn": reader, "lakehouse_catalog_uri": lake.lakehouse_catalog_uri}
    own["lakehouse_warehouse"] = lake.lakehouse_warehouse
    _, found = examine(**own)
    assert [one["level"] for one in found["sequences"]] == ["OK"]
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("select setval('receipts_sequence', 10)")
        owner.execute("update stream_positions set stream_id = 4300 where instance_name = 'persister1'")
    code, found = examine(**own)
    assert code == 1
    said = [one["message"] for one in found["sequences"]]
    assert "Synapse will refuse to start" in said[0]
    assert said[-1].startswith("THE DATABASE WENT BACK: events: persister1 from 4373 to 4300.")
    assert found["sequences"][0]["advice"].endswith("select setval('receipts_sequence', 83);")
    with psycopg.connect(source_copy, autocommit=True) as owner:
        assert owner.execute("select last_value from receipts_sequence").fetchone() == (10,)


def test_a_lake_of_another_homeserver_is_told_of(
    examine: Examine, settings: Settings, new_lake: Callable[..., Settings]
) -> None:
    lake = new_lake()
    now = datetime.now(UTC)
    with open_catalog(lake) as catalog:
        tables.ensure_audit_tables(catalog)
        row = {"release": 1, "server_name": "example.org", "tables": [], "positions": [], "views": []}
        store.append_audit_rows(
            catalog, "audit.releases", [row | {"published_at": now}], Run("run", now - timedelta(days=1), now)
        )
    own = {"lakehouse_catalog_uri": lake.lakehouse_catalog_uri, "lakehouse_warehouse": lake.lakehouse_warehouse}
    code, found = examine(**own)
    assert (code, found["homeserver"][0]["level"]) == (1, "FAIL")
    assert (
        f"releases of example.org, but the homeserver to copy is {settings.synapse_server_name}"
        in (found["homeserver"][0]["message"])
    )


def test_a_name_without_its_database_is_told_of(examine: Examine) -> None:
    code, found = examine(synapse_dsn=None, synapse_server_name="example.org")
    assert (code, found["source"][0]["level"]) == (1, "FAIL")
    assert "SYNAPSE_DSN, its database, is not set" in found["source"][0]["message"]


@pytest.mark.parametrize(("in_recovery", "level"), [(None, "OK"), (True, "OK"), (False, "FAIL")])
def test_a_release_that_was_read_on_a_standby_saw_sequences_ahead(
    examine: Examine, reader: str, new_lake: Callable[..., Settings], in_recovery: bool | None, level: str
) -> None:
    lake = new_lake()
    with open_catalog(lake) as catalog:
        for schema in SCHEMAS:
            catalog.create_namespace(schema)
        for name in ("audit.releases", "audit.stream_positions", "audit.leases", "audit.snapshots"):
            catalog.create_table(name, store.AUDIT_SCHEMAS[name])
        now = datetime.now(UTC)
        run = Run("run", now - timedelta(days=1), now)
        release = {"release": 1, "tables": [], "positions": [], "views": [], "published_at": now}
        store.append_audit_rows(catalog, "audit.releases", [release], run)
        known = {"stream": "events", "writers": [("persister1", 4373)], "sequence_last_value": 4413 + 32}
        store.append_audit_rows(catalog, "audit.stream_positions",
                     [known | {"sequence_is_called": True, "measured_at": now}], run)  # fmt: skip
        if in_recovery is not None:
            store.append_audit_rows(catalog, "audit.snapshots", [{"in_recovery": in_recovery}], run)
    own = {"synapse_dsn": reader, "lakehouse_catalog_uri": lake.lakehouse_catalog_uri}
    _, found = examine(**own, lakehouse_warehouse=lake.lakehouse_warehouse)
    assert found["sequences"][-1]["level"] == level, found["sequences"]


def test_row_level_security_that_hides_rows_is_refused(
    examine: Examine, reader: str, source_copy: str, settings: Settings
) -> None:
    role, own = _user(reader), settings.model_copy(update={"synapse_dsn": reader})
    with psycopg.connect(source_copy, autocommit=True) as owner:
        for table in ("schema_version", "rooms", "receipts_linearized"):
            # PostgreSQL would leave rows out without an error, also where a policy lets all through today.
            owner.execute(f"alter table {table} enable row level security".encode())
            owner.execute(f"create policy all_rows on {table} using (true)".encode())
        for subject, hidden in (("schema", ["schema_version"]), ("row security", ["receipts_linearized", "rooms"])):
            code, found = examine(synapse_dsn=reader)
            (refused,) = [one for one in found[subject] if one["level"] == "FAIL"]
            assert code == 1
            assert ", ".join(hidden) in refused["message"]
            with connect(own) as connection, pytest.raises(SourceError) as stopped:
                preflight.check_source_database(connection, catalogue.load_catalogue(), str(own.synapse_server_name))
            assert str(stopped.value) == refused["message"]
            bypass, *disable = re.findall(r"ALTER [^;]*;?", refused["message"])
            assert len(disable) == len(hidden)
            for statement in disable:
                owner.execute(statement.encode())
        code, found = examine(synapse_dsn=reader)
        assert code == 0
        owner.execute("alter table rooms enable row level security")
        owner.execute(f"alter role {role} bypassrls".encode())
        assert bypass.startswith(f"ALTER ROLE {role} BYPASSRLS")
    code, found = examine(synapse_dsn=reader)
    assert code == 0
    assert {one["level"] for subject in ("rights", "role", "schema") for one in found[subject]} == {"OK"}


def test_no_reader_of_the_source_is_shown_a_part_of_a_table(
    reader: str, source_copy: str, settings: Settings, tmp_path: Path
) -> None:
    own, table = settings.model_copy(update={"synapse_dsn": reader}), catalogue.load_catalogue().table("rooms")
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("alter table rooms enable row level security")
    with connect(own) as connection:
        row = connection.execute("select pg_export_snapshot()").fetchone()
        assert row
        chunk = ReadChunk(
            build_conninfo(own),
            str(row[0]),
            build_select(table).as_string(),
            get_arrow_schema(table),
            (),
            tmp_path.as_uri(),
            {},
        )
        with pytest.raises(ReadError, match="row-level security"):
            copy_chunks([chunk])
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute("select room_id from rooms")


def test_an_owner_is_told_to_use_another_role(examine: Examine, reader: str, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(f"alter table events owner to {_user(reader)}".encode())
    _, found = examine(synapse_dsn=reader)
    (owned,) = found["role"][:-1]
    assert owned["message"].startswith(f"The role {_user(reader)} owns events:")


def test_the_role_that_compresses_is_examined_like_the_one_that_reads(
    examine: Examine, reader: str, source_copy: str
) -> None:
    name = f"compressor_{uuid.uuid4().hex[:8]}"
    dsn = make_conninfo(source_copy, user=name, password="p")
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(f"create role {name}")
        owner.execute(f"alter role {name} login password 'p'".encode())
        try:
            code, found = examine(synapse_dsn=reader, synapse_write_dsn=dsn)
            assert (code, [one["level"] for one in found["compressor's role"]]) == (1, ["FAIL"])
            owner.execute(compressor_grants.create_role_sql(name, _user(reader)).encode())
            code, found = examine(synapse_dsn=reader, synapse_write_dsn=dsn)
            assert (code, {one["level"] for one in found["compressor's role"]}) == (0, {"OK"})
            owner.execute(f"grant update, delete on state_groups to {name}".encode())
            owner.execute(f"grant temporary on database {owner.info.dbname} to {name}".encode())
            code, found = examine(synapse_dsn=reader, synapse_write_dsn=dsn)
            said = [one["message"] for one in found["compressor's role"] if one["level"] == "WARN"]
            assert code == 0
            assert len(said) == 3
            for part in (
                "DELETE, which it does not need, on table state_groups.",
                "UPDATE, which",
                "temporary tables in",
            ):
                assert any(part in one for one in said), said
        finally:
            owner.execute(f"drop owned by {name}; drop role {name}".encode())


def test_a_missing_column_is_drift(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("alter table events drop column sender")
    code, found = examine(synapse_dsn=source_copy)
    assert code == 1
    assert {"events", "sender"} <= set(found["drift"][0]["message"].replace(",", " ").split())


def test_a_view_in_place_of_a_table_is_drift(
    examine: Examine, reader: str, source_copy: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("alter table rooms rename to whole; create view rooms as select * from whole")
    code, found = examine(synapse_dsn=reader)
    assert (code, [one["level"] for one in found["drift"]]) == (1, ["FAIL"])
    assert found["drift"][0]["message"].startswith("rooms is a view")
    assert "error ignored" not in caplog.text


def test_drift_is_mild_where_runs_go_on_without_the_table(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("alter table events drop column sender")
        owner.execute("drop table threads")
    code, found = examine(synapse_dsn=source_copy, lakehouse_on_drift="partial")
    assert code == 0
    assert [one["level"] for one in found["drift"]] == ["WARN", "WARN"]
    assert "LAKEHOUSE_ON_DRIFT" in found["drift"][0]["advice"]
    assert found["rights"][0]["level"] == "OK"


def test_what_the_lakehouse_has_never_heard_of_is_named(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("create table polls (id bigint)")
        owner.execute("alter table users add column mood text")
    code, found = examine(synapse_dsn=source_copy)
    assert (code, found["novelties"][0]["level"]) == (0, "WARN")
    assert "polls, users.mood" in found["novelties"][0]["message"]


def test_an_unsupported_schema_version(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("update schema_version set version = 1")
    code, found = examine(synapse_dsn=source_copy)
    assert (code, found["schema"][0]["advice"]) == (1, "Upgrade Synapse.")


def test_a_database_that_is_not_synapses(examine: Examine, server: EmbeddedServer) -> None:
    code, found = examine(synapse_dsn=server.dsn())
    assert code == 1
    assert "schema_version" in found["schema"][0]["message"]


def test_an_unreachable_source_leaves_the_rest_examined(examine: Examine) -> None:
    code, found = examine(synapse_dsn=f"postgresql://someone:secret-word@127.0.0.1:{find_free_port()}/synapse")
    assert (code, found["source"][0]["level"]) == (1, "FAIL")
    assert "lake" in found
    assert "secret-word" not in json.dumps(found)


def test_an_unreachable_catalog(examine: Examine) -> None:
    code, found = examine(
        lakehouse_catalog_uri=f"postgresql://someone:secret-word@127.0.0.1:{find_free_port()}/iceberg"
    )
    assert (code, found["lake"][0]["level"]) == (1, "FAIL")
    assert "secret-word" not in json.dumps(found)


def test_before_the_first_run(examine: Examine, tmp_path: Path) -> None:
    fresh = {"synapse_dsn": None, "synapse_server_name": None, "lakehouse_catalog_uri": None}
    code, found = examine(**fresh, lakehouse_home=tmp_path / "home", lakehouse_warehouse=None)
    assert (code, found["set-up"][0]["level"]) == (0, "WARN")
    assert not (tmp_path / "home").exists()


def test_a_homeserver_s_database_is_examined_before_the_first_run(
    examine: Examine, reader: str, tmp_path: Path
) -> None:
    fresh = {"lakehouse_catalog_uri": None, "lakehouse_home": tmp_path / "home", "lakehouse_warehouse": None}
    code, found = examine(**fresh, synapse_dsn=reader)
    assert (code, found["source"][0]["level"], found["set-up"][0]["level"]) == (0, "OK", "WARN")
    assert found["sequences"]
    code, found = examine(**fresh, synapse_dsn=f"postgresql://someone:secret-word@127.0.0.1:{find_free_port()}/synapse")
    assert (code, found["source"][0]["level"]) == (1, "FAIL")
    assert not (tmp_path / "home").exists()


def test_rows_that_a_broken_index_hides_are_found_by_reading_all(
    examine: Examine, reader: str, source_copy: str
) -> None:
    index = "update pg_index set indisready = {}, indisvalid = {} where indexrelid = 'rooms_pkey'::regclass"
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(index.format("false", "false").encode())
    with psycopg.connect(source_copy, autocommit=True) as owner:
        row = owner.execute(
            "insert into rooms select * from rooms order by room_id limit 1 returning room_id"
        ).fetchone()
        assert row
        owner.execute(index.format("true", "true").encode())
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("set enable_seqscan = off; set enable_bitmapscan = off")
        assert owner.execute("select count(*) from rooms where room_id = %s", row).fetchone() == (1,)
    code, found = examine("--deep", synapse_dsn=reader)
    assert code == 1
    (repeated, rest) = found["duplicates"]
    assert repeated["message"].startswith("rooms has 1 key (room_id) ")
    assert repeated["message"].endswith(f": {row[0]}")
    assert "REINDEX" in repeated["advice"]
    assert rest["level"] == "OK"
    _, found = examine(synapse_dsn=reader)
    assert "duplicates" not in found


def test_large_tables_are_read_in_parts(reader: str) -> None:
    known = catalogue.load_catalogue()
    with psycopg.connect(reader) as connection:
        for table in (known.table("events"), known.table("receipts_linearized")):
            assert duplicates.find_duplicate_keys(connection, table, rows_per_pass=100) == duplicates.DuplicateKeys(
                0, ()
            )
        by_room = known.table("events").model_copy(update={"primary_key": ("room_id",)})
        whole = duplicates.find_duplicate_keys(connection, by_room)
        assert duplicates.find_duplicate_keys(connection, by_room, rows_per_pass=100).keys == whole.keys > 10


def test_a_table_that_cannot_be_read_in_time_is_named_and_the_others_are_read(
    examine: Examine, reader: str, source_copy: str
) -> None:
    with psycopg.connect(source_copy) as busy:
        busy.execute("lock table threads in access exclusive mode")
        code, found = examine("--deep", synapse_dsn=reader, lakehouse_statement_timeout_seconds=1)
    assert code == 0
    (unread, rest) = found["duplicates"]
    assert (unread["level"], rest["level"]) == ("WARN", "OK")
    assert unread["message"].startswith("threads ")
    assert "canceling statement due to" in unread["message"]


def _user(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["user"])
