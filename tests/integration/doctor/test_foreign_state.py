"""A state database of another homeserver is refused; a state database with lost or deleted groups is accepted."""

from collections.abc import Iterator

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.access import preflight
from synapse_lakehouse.postgres.errors import SourceError
from tests.support.doctor import Examine
from tests.support.split_source import split_source

OTHER_ROOMS = "update state_groups set room_id = '!of_another_homeserver' || id"
OTHER_GROUPS = "update state_groups set id = id + 1000000"
FOREIGN = pytest.mark.parametrize("change", [OTHER_ROOMS, OTHER_GROUPS, "truncate state_groups"])


@pytest.fixture
def split_settings(server: EmbeddedServer, settings: Settings) -> Iterator[Settings]:
    with split_source(server) as (main, state):
        yield settings.model_copy(update={"synapse_dsn": main, "synapse_state_dsn": state})


def change_state(split_settings: Settings, change: str) -> None:
    with psycopg.connect(str(split_settings.synapse_state_dsn)) as owner:
        owner.execute(change.encode())


@FOREIGN
def test_state_of_another_homeserver_is_refused(split_settings: Settings, change: str) -> None:
    change_state(split_settings, change)
    with pytest.raises(SourceError, match="SYNAPSE_STATE_DSN") as error:
        preflight.check_source(split_settings, catalogue.load_catalogue())
    assert str(error.value).count("\n") == 0


@FOREIGN
def test_doctor_reports_a_foreign_state_database(split_settings: Settings, examine: Examine, change: str) -> None:
    change_state(split_settings, change)
    dsns = {"synapse_dsn": split_settings.synapse_dsn, "synapse_state_dsn": split_settings.synapse_state_dsn}
    code, findings = examine(**dsns, synapse_write_dsn=split_settings.synapse_state_dsn)
    assert (code, [finding["level"] for finding in findings["state database"]]) == (1, ["FAIL"])
    (compressor,) = findings["compressor's role"]
    assert "SYNAPSE_WRITE_DSN does not contain the state" in compressor["message"]


@pytest.mark.parametrize(
    ("main", "state"),
    [
        ("select", "select"),
        ("select", "delete from state_groups where id > (select min(id) + 99 from state_groups)"),
        ("select", "delete from state_groups where id < (select max(id) - 99 from state_groups)"),
        ("truncate event_to_state_groups", "truncate state_groups"),
        ("truncate event_to_state_groups", "select"),
        (
            "delete from events where room_id <> (select min(room_id) from events)",
            "truncate state_groups",
        ),
    ],
    ids=["own", "newest groups lost", "oldest groups lost", "empty", "no event with state", "the only room purged"],
)
def test_the_homeserver_s_own_state_passes(split_settings: Settings, examine: Examine, main: str, state: str) -> None:
    with psycopg.connect(str(split_settings.synapse_dsn)) as owner:
        owner.execute(b"set session_replication_role = replica")
        owner.execute(main.encode())
    change_state(split_settings, state)
    assert [schema.version for schema in preflight.check_source(split_settings, catalogue.load_catalogue())]
    _, findings = examine(synapse_dsn=split_settings.synapse_dsn, synapse_state_dsn=split_settings.synapse_state_dsn)
    assert [finding["level"] for finding in findings["state database"]] == ["OK"]


def test_one_database_passes(settings: Settings, examine: Examine) -> None:
    assert preflight.check_source(settings, catalogue.load_catalogue())
    _, findings = examine()
    assert "state database" not in findings


def test_tables_that_are_not_copied_are_not_compared(split_settings: Settings) -> None:
    partial = split_settings.model_copy(update={"lakehouse_on_drift": "partial"})
    change_state(split_settings, f"{OTHER_ROOMS}; alter table state_groups drop column event_id")
    assert preflight.check_source(partial, catalogue.load_catalogue())
