"""``lakehouse doctor`` compares the schema of the database with the catalogue."""

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.support.doctor import Examine
from tests.support.older_source import hide_additions
from tests.support.reader_role import reader_role


def test_a_missing_column_is_drift(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("alter table events drop column sender")
    code, findings = examine(synapse_dsn=source_copy)
    assert code == 1
    assert {"events", "sender"} <= set(findings["drift"][0]["message"].replace(",", " ").split())


def test_a_view_in_place_of_a_table_is_drift(
    examine: Examine, reader: str, source_copy: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("alter table rooms rename to whole; create view rooms as select * from whole")
    code, findings = examine(synapse_dsn=reader)
    assert (code, [finding["level"] for finding in findings["drift"]]) == (1, ["FAIL"])
    assert findings["drift"][0]["message"].startswith("rooms is a view")
    assert "error ignored" not in caplog.text


def test_drift_is_a_warning_if_partial_runs_are_allowed(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("alter table events drop column sender")
        owner.execute("drop table threads")
    code, findings = examine(synapse_dsn=source_copy, lakehouse_on_drift="partial")
    assert code == 0
    assert [finding["level"] for finding in findings["drift"]] == ["WARN", "WARN"]
    assert "LAKEHOUSE_ON_DRIFT" in findings["drift"][0]["advice"]
    assert findings["rights"][0]["level"] == "OK"


def test_unknown_tables_and_columns_are_listed(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("create table polls (id bigint)")
        owner.execute("alter table users add column mood text")
    code, findings = examine(synapse_dsn=source_copy)
    assert (code, findings["novelties"][0]["level"]) == (0, "WARN")
    assert "polls, users.mood" in findings["novelties"][0]["message"]


def test_unknown_columns_of_a_quoted_schema_are_listed(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute('alter schema public rename to "Matrix"')
        owner.execute("create schema matrix; create table matrix.polls (id bigint)")
        owner.execute('alter table "Matrix".users add column mood text')
    code, findings = examine(synapse_dsn=make_conninfo(source_copy, options='-c search_path="Matrix"'))
    (schema,), (novelty,) = findings["schema"], findings["novelties"]
    assert (code, schema["level"], novelty["level"]) == (0, "OK", "WARN")
    assert "users.mood" in novelty["message"]
    assert "polls" not in novelty["message"]


def test_synapse_s_schema_is_not_the_first_of_the_search_path(
    settings: Settings, examine: Examine, source_copy: str
) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute('alter schema public rename to "Matrix"')
        owner.execute("create schema public; create table public.orders (id bigint)")
    options = '-c search_path=public,"Matrix"'
    with reader_role(settings, make_conninfo(source_copy, options=options)) as reader:
        code, findings = examine(synapse_dsn=make_conninfo(reader.dsn, options=options))
    assert code == 0
    assert [finding["level"] for finding in findings["rights"]] == ["OK"]
    assert "novelties" not in findings
    assert 'in the schema "Matrix"' in findings["schema"][0]["message"]


def test_an_unsupported_schema_version_fails(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("update schema_version set version = 1")
    code, findings = examine(synapse_dsn=source_copy)
    assert (code, findings["schema"][0]["level"]) == (1, "FAIL")
    assert "1.120" in findings["schema"][0]["message"]


def test_a_later_schema_version_is_a_warning(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("update schema_version set version = 999")
    code, findings = examine(synapse_dsn=source_copy)
    assert (code, findings["schema"][0]["level"]) == (0, "WARN")
    assert [finding["level"] for finding in findings["drift"]] == ["OK"]


def test_objects_that_the_release_lacks_are_listed(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        absent_names = hide_additions(owner, catalogue.load_catalogue())
    code, findings = examine(synapse_dsn=source_copy)
    assert code == 0
    assert [finding["level"] for finding in (*findings["release"], *findings["drift"])] == ["OK", "OK"]
    assert all(name in findings["release"][0]["message"] for name in absent_names)


def test_a_database_without_synapse_s_schema_fails(examine: Examine, server: EmbeddedServer) -> None:
    code, findings = examine(synapse_dsn=server.dsn())
    assert code == 1
    assert "schema_version" in findings["schema"][0]["message"]
