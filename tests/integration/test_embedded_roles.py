"""Each role of the embedded PostgreSQL reaches its own database and runs no program."""

import stat
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from synapse_lakehouse.local.postgres import roles
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer, run_server

SUPERUSER_OBJECTS = """
create type kind as enum ('one', 'other');
create table things (id serial primary key, number bigint generated always as identity, kind kind);
create view all_things as select * from things;
create sequence free;
create function double(number int) returns int language sql as 'select 2 * number';
insert into things (kind) values ('one');
"""


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """Yield a server for the databases of these tests."""
    with run_server(tmp_path_factory.mktemp("roles") / "postgres") as server:
        yield server


def test_an_owner_has_only_the_necessary_rights(embedded: EmbeddedServer) -> None:
    uri, other = roles.ensure_owner(embedded, "lake-example.org"), roles.ensure_owner(embedded, "airflow")
    assert roles.ensure_owner(embedded, "lake-example.org") == uri
    embedded.create_database("anybody")
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("create table things (id int)")
        for statement in (
            "copy things from program 'echo 1'",
            "select pg_read_file('/etc/passwd')",
            "select lo_import('/etc/passwd')",
            "create role another superuser",
            "create database another",
            "select * from pg_authid",
            "set role postgres",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
    for database in ("airflow", "postgres", "template1"):
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(make_conninfo(uri, dbname=database))
    with pytest.raises(psycopg.OperationalError, match="permission denied"):
        psycopg.connect(make_conninfo(other, dbname="lake-example.org"))
    file = embedded.password_file("airflow")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert embedded.password not in file.read_text()


def test_the_superuser_runs_no_function_of_an_owner(embedded: EmbeddedServer) -> None:
    with psycopg.connect(roles.ensure_owner(embedded, "trap"), autocommit=True) as connection:
        connection.execute("create function public.shobj_description(oid, name) returns text return current_user")
        connection.execute("alter database trap set search_path = public, pg_catalog")
    embedded.tool("psql", "-Xqc", "comment on database trap is 'remembered'")
    assert embedded.comment("trap") == "remembered"


def test_a_new_password_runs_no_function_of_an_owner(embedded: EmbeddedServer) -> None:
    uri = roles.ensure_owner(embedded, "renewed")
    with psycopg.connect(uri) as connection:
        connection.execute(
            "create function public.quote_ident(name) returns text language plpgsql as"
            " $$begin raise exception 'run by %', current_user; end$$"
        )
    embedded.password_file("renewed").unlink()
    with psycopg.connect(roles.ensure_owner(embedded, "renewed")) as connection:
        assert connection.execute("select current_user").fetchone() == ("renewed",)


def test_a_reader_reads_and_writes_nothing(embedded: EmbeddedServer, tmp_path: Path) -> None:
    for _ in range(2):
        embedded.create_database("sample")
        with psycopg.connect(embedded.dsn("sample")) as superuser:
            superuser.execute(SUPERUSER_OBJECTS.encode())
        uri = roles.ensure_reader(embedded, "sample")
        with psycopg.connect(uri, autocommit=True) as connection:
            assert connection.execute("select id from things").fetchall() == [(1,)]
            connection.execute("select last_value from things_id_seq")
            for statement in ("delete from things", "create table mine (id int)", "create temp table mine (id int)"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())
        embedded.tool("dropdb", "--force", "sample")


def test_an_incomplete_role_is_completed(embedded: EmbeddedServer) -> None:
    embedded.password_file("half").touch(mode=0o600)
    embedded.password_file("half").write_text("known before")
    embedded.create_database("half")
    with psycopg.connect(roles.ensure_owner(embedded, "half")) as connection:
        assert connection.execute("select current_user").fetchone() == ("half",)


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_damaged_password_file_is_replaced(embedded: EmbeddedServer, content: bytes | None) -> None:
    for ensure in (roles.ensure_owner, roles.ensure_reader):
        database = ensure.__name__
        embedded.create_database(database)
        ensure(embedded, database)
        file = embedded.password_file(database)
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        with psycopg.connect(ensure(embedded, database)) as connection:
            assert connection.execute("select current_user").fetchone() == (database,)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
