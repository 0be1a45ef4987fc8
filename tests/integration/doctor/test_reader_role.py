"""``lakehouse doctor`` examines the rights of the roles that read and compress."""

import re
import uuid
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from synapse_lakehouse import catalogue
from synapse_lakehouse.compressor.postgres import grants as compressor_grants
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write.tables import get_arrow_schema
from synapse_lakehouse.postgres.access import preflight
from synapse_lakehouse.postgres.connection import build_conninfo, connect
from synapse_lakehouse.postgres.errors import ReadError, SourceError
from synapse_lakehouse.postgres.rows.copy_to_parquet import ReadChunk, copy_chunks
from synapse_lakehouse.postgres.rows.select_sql import build_select
from tests.support.doctor import Examine, role_of


def test_a_superuser_is_a_warning(examine: Examine, source_copy: str) -> None:
    code, findings = examine(synapse_dsn=source_copy)
    assert (code, findings["role"][0]["level"]) == (0, "WARN")
    assert "is a superuser" in findings["role"][0]["message"]
    assert "`lakehouse grants`" in findings["role"][0]["advice"]


def test_the_role_of_lakehouse_grants_passes(examine: Examine, reader: str) -> None:
    code, findings = examine(synapse_dsn=reader)
    assert code == 0
    needed, limits = findings["role"]
    assert needed["level"] == limits["level"] == "OK"
    assert needed["message"].startswith(f"{role_of(reader)} ")
    assert "8 connections" in limits["message"]
    assert findings["rights"][0]["level"] == "OK"


def test_missing_rights_are_reported_with_their_grants(examine: Examine, reader: str, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(f"revoke all on receipts_linearized, users, receipts_sequence from {role_of(reader)}".encode())
        owner.execute(f"revoke select (xmin) on events from {role_of(reader)}".encode())
        code, findings = examine(synapse_dsn=reader)
        assert code == 1
        grants = [grant for finding in findings["rights"] for grant in re.findall(r"GRANT .*;", finding["message"])]
        assert len(grants) == 4
        assert any("events (xmin)" in finding["message"] for finding in findings["rights"])
        for grant in grants:
            owner.execute(grant.encode())
    code, findings = examine(synapse_dsn=reader)
    assert (code, findings["rights"][0]["level"]) == (0, "OK")


@pytest.mark.parametrize(
    ("excess", "privilege"),
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
def test_excess_rights_are_reported_with_their_revokes(
    examine: Examine, reader: str, source_copy: str, excess: str, privilege: str
) -> None:
    database = str(psycopg.conninfo.conninfo_to_dict(source_copy)["dbname"])
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(excess.format(role=role_of(reader), database=database).encode())
        code, findings = examine(synapse_dsn=reader)
        assert code == 0
        assert {finding["level"] for finding in findings["role"][:-1]} == {"WARN"}
        assert any(privilege in finding["message"] for finding in findings["role"]), findings["role"]
        for finding in findings["role"]:
            for statement in re.findall(r"(?:REVOKE|ALTER) [^;]*;", finding["advice"]):
                owner.execute(statement.encode())
    _, findings = examine(synapse_dsn=reader)
    assert {finding["level"] for finding in findings["role"]} == {"OK"}, findings["role"]


def test_row_level_security_fails(examine: Examine, reader: str, source_copy: str, settings: Settings) -> None:
    role, reader_settings = role_of(reader), settings.model_copy(update={"synapse_dsn": reader})
    with psycopg.connect(source_copy, autocommit=True) as owner:
        for table in ("schema_version", "rooms", "receipts_linearized"):
            # PostgreSQL would omit rows without an error, even if the policy allows all rows today.
            owner.execute(f"alter table {table} enable row level security".encode())
            owner.execute(f"create policy all_rows on {table} using (true)".encode())
        for subject, hidden in (("schema", ["schema_version"]), ("row security", ["receipts_linearized", "rooms"])):
            code, findings = examine(synapse_dsn=reader)
            (failure,) = [finding for finding in findings[subject] if finding["level"] == "FAIL"]
            assert code == 1
            assert ", ".join(hidden) in failure["message"]
            with connect(reader_settings) as connection, pytest.raises(SourceError) as error:
                preflight.check_source_database(
                    connection, catalogue.load_catalogue(), str(reader_settings.synapse_server_name)
                )
            assert str(error.value) == failure["message"]
            bypass, *disable = re.findall(r"ALTER [^;]*;?", failure["message"])
            assert len(disable) == len(hidden)
            for statement in disable:
                owner.execute(statement.encode())
        code, findings = examine(synapse_dsn=reader)
        assert code == 0
        owner.execute("alter table rooms enable row level security")
        owner.execute(f"alter role {role} bypassrls".encode())
        assert bypass.startswith(f"ALTER ROLE {role} BYPASSRLS")
    code, findings = examine(synapse_dsn=reader)
    assert code == 0
    assert {finding["level"] for subject in ("rights", "role", "schema") for finding in findings[subject]} == {"OK"}


def test_row_level_security_stops_every_read(reader: str, source_copy: str, settings: Settings, tmp_path: Path) -> None:
    reader_settings, table = (
        settings.model_copy(update={"synapse_dsn": reader}),
        catalogue.load_catalogue().table("rooms"),
    )
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("alter table rooms enable row level security")
    with connect(reader_settings) as connection:
        row = connection.execute("select pg_export_snapshot()").fetchone()
        assert row
        chunk = ReadChunk(
            build_conninfo(reader_settings),
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


def test_a_role_that_owns_tables_is_reported(examine: Examine, reader: str, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(f"alter table events owner to {role_of(reader)}".encode())
    _, findings = examine(synapse_dsn=reader)
    (finding,) = findings["role"][:-1]
    assert finding["message"].startswith(f"The role {role_of(reader)} owns events:")


def test_the_compressor_s_role_is_examined_too(examine: Examine, reader: str, source_copy: str) -> None:
    name = f"compressor_{uuid.uuid4().hex[:8]}"
    dsn = make_conninfo(source_copy, user=name, password="p")
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(f"create role {name}")
        owner.execute(f"alter role {name} login password 'p'".encode())
        try:
            code, findings = examine(synapse_dsn=reader, synapse_write_dsn=dsn)
            assert (code, [finding["level"] for finding in findings["compressor's role"]]) == (1, ["FAIL"])
            owner.execute(compressor_grants.create_role_sql(name, role_of(reader)).encode())
            code, findings = examine(synapse_dsn=reader, synapse_write_dsn=dsn)
            assert (code, {finding["level"] for finding in findings["compressor's role"]}) == (0, {"OK"})
            owner.execute(f"grant update, delete on state_groups to {name}".encode())
            owner.execute(f"grant temporary on database {owner.info.dbname} to {name}".encode())
            code, findings = examine(synapse_dsn=reader, synapse_write_dsn=dsn)
            messages = [finding["message"] for finding in findings["compressor's role"] if finding["level"] == "WARN"]
            assert code == 0
            assert len(messages) == 3
            for part in (
                "DELETE, which it does not need, on table state_groups.",
                "UPDATE, which",
                "temporary tables in",
            ):
                assert any(part in message for message in messages), messages
        finally:
            owner.execute(f"drop owned by {name}; drop role {name}".encode())
