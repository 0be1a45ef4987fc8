"""``lakehouse doctor`` examines both databases of a homeserver with a separate state database."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.relation_size import RelationSize
from synapse_lakehouse.postgres.relation_sizes import read_relation_sizes
from tests.support.doctor import Examine
from tests.support.reader_role import run_script
from tests.support.split_source import STATE_TABLES, split_source


@pytest.fixture
def owner_dsns(server: EmbeddedServer) -> Iterator[tuple[str, str]]:
    with split_source(server) as databases:
        yield databases


@pytest.fixture
def reader_dsns(settings: Settings, owner_dsns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the URIs of both databases for a role that the documented commands create."""
    name, (main, state) = f"reader_{uuid.uuid4().hex[:8]}", owner_dsns
    both_settings = settings.model_copy(update={"synapse_dsn": main, "synapse_state_dsn": state})
    run_script(both_settings, main, "grants", "--role", name)
    run_script(both_settings, state, "grants", "--state", "--role", name)
    for database, option in ((main, ()), (state, ("--state",))):
        run_script(both_settings, database, "grants", "--harden", *option, "--role", name)
    with psycopg.connect(main, autocommit=True) as owner:
        owner.execute(f"alter role {name} password 'p'".encode())
    yield make_conninfo(main, user=name, password="p"), make_conninfo(state, user=name, password="p")
    for database in (state, main):
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute(f"drop owned by {name}".encode())
    with psycopg.connect(main, autocommit=True) as owner:
        owner.execute(f"drop role {name}".encode())


def test_doctor_examines_both_databases(examine: Examine, reader_dsns: tuple[str, str]) -> None:
    main, state = reader_dsns
    _, findings = examine(synapse_dsn=main, synapse_state_dsn=state)
    subjects = ("source", "role", "schema", "drift", "rights", "sequences", "background updates")
    levels = {subject: [finding["level"] for finding in findings[subject]] for subject in subjects}
    # Both databases are copies of the sample, which has a pending update. The lake may add a third finding.
    assert levels.pop("background updates")[:2] == ["WARN", "WARN"]
    assert {subject: set(values) for subject, values in levels.items()} == {subject: {"OK"} for subject in levels}
    assert all(len(values) % 2 == 0 for values in levels.values())

    _, findings = examine(synapse_dsn=main)
    assert "SYNAPSE_STATE_DSN" in findings["schema"][0]["message"]
    _, findings = examine(synapse_dsn=main, synapse_state_dsn=main)
    assert "FAIL" in {finding["level"] for finding in findings["schema"]}


def test_one_database_for_both_settings_fails(examine: Examine, source_copy: str) -> None:
    _, findings = examine(synapse_dsn=source_copy, synapse_state_dsn=source_copy)
    (finding,) = findings["state database"]
    assert finding["level"] == "FAIL"
    assert "remove SYNAPSE_STATE_DSN" in finding["message"]


def test_the_compressor_must_write_to_the_state_database(
    examine: Examine, owner_dsns: tuple[str, str], source_copy: str
) -> None:
    _, state = owner_dsns
    for write_dsn, is_other in ((source_copy, True), (state, False)):
        _, findings = examine(synapse_dsn=source_copy, synapse_state_dsn=state, synapse_write_dsn=write_dsn)
        messages = [finding["message"] for finding in findings["compressor's role"]]
        assert any("is not the database" in message for message in messages) is is_other


def test_each_sequence_is_checked_in_its_database(examine: Examine, owner_dsns: tuple[str, str]) -> None:
    main, state = owner_dsns
    with psycopg.connect(state) as connection:
        connection.execute("select setval('state_group_id_seq', 1)")
    _, findings = examine(synapse_dsn=main, synapse_state_dsn=state)
    faults = [finding["message"] for finding in findings["sequences"] if finding["level"] == "FAIL"]
    assert len(faults) == 2, "rows of state_groups, and events of main, have higher state groups"
    assert all("state_group_id_seq" in fault for fault in faults)


def test_a_regressed_state_database_fails(examine: Examine, owner_dsns: tuple[str, str]) -> None:
    main, state = owner_dsns
    with psycopg.connect(state) as connection:
        (last,) = connection.execute("select max(id) - 1 from state_groups").fetchone() or (0,)
        connection.execute("delete from state_groups where id > %s", [last])
        connection.execute("select setval('state_group_id_seq', %s)", [last])
    _, findings = examine(synapse_dsn=main, synapse_state_dsn=state)
    (fault,) = (finding for finding in findings["sequences"] if finding["level"] == "FAIL")
    assert f"up to {last}, but events in SYNAPSE_DSN name state groups up to {last + 1}" in fault["message"]
    assert f"setval('state_group_id_seq', greatest({last + 1}, " in fault["advice"]


def test_sizes_of_both_databases(settings: Settings, owner_dsns: tuple[str, str], sample_dsn: str) -> None:
    main, state = owner_dsns
    both = read_relation_sizes(settings.model_copy(update={"synapse_dsn": main, "synapse_state_dsn": state}))
    (only_main,) = (size for size in _sizes(settings, main) if size.kind == "database")
    (only_state,) = (size for size in _sizes(settings, state) if size.kind == "database")
    (total,) = (size for size in both if size.kind == "database")
    assert total.bytes == (only_main.bytes or 0) + (only_state.bytes or 0)
    names = sorted(size.name for size in both if size.kind == "table")
    assert names == sorted(size.name for size in _sizes(settings, sample_dsn) if size.kind == "table")
    assert set(STATE_TABLES) <= set(names)


def _sizes(settings: Settings, dsn: str) -> list[RelationSize]:
    return read_relation_sizes(settings.model_copy(update={"synapse_dsn": dsn}))
