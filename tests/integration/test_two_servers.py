"""A state database on a separate server: sizes, slots, and the error of a wrong password."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from synapse_lakehouse import catalogue
from synapse_lakehouse.catalogue import Database
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.access import preflight
from synapse_lakehouse.postgres.connection import connect
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.postgres.relation_sizes import read_relation_sizes
from tests.support.split_source import second_server, split_source


@pytest.fixture(scope="module")
def split_settings(
    server: EmbeddedServer, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    with (
        second_server(tmp_path_factory.mktemp("state")) as state_server,
        split_source(server, state_server=state_server) as (main, state),
    ):
        yield settings.model_copy(update={"synapse_dsn": main, "synapse_state_dsn": state})


def test_both_servers_belong_together(split_settings: Settings) -> None:
    assert len(preflight.check_source(split_settings, catalogue.load_catalogue())) == 2


def test_a_wrong_password_of_the_state_database_is_named(split_settings: Settings) -> None:
    wrong = make_conninfo(str(split_settings.synapse_state_dsn), password="secret-word")
    settings = split_settings.model_copy(update={"synapse_state_dsn": wrong})
    with pytest.raises(SourceError, match="Correct it in SYNAPSE_STATE_DSN") as error:
        preflight.check_source(settings, catalogue.load_catalogue())
    assert "secret-word" not in str(error.value)
    with connect(settings, Database.MAIN):
        pass


def test_slots_of_both_servers_are_measured(split_settings: Settings) -> None:
    databases = [str(split_settings.synapse_dsn), str(split_settings.synapse_state_dsn)]
    try:
        for dsn in databases:
            with psycopg.connect(dsn) as owner:
                owner.execute("select pg_create_physical_replication_slot('standby', true)")
        sizes = read_relation_sizes(split_settings)
    finally:
        for dsn in databases:
            with psycopg.connect(dsn, autocommit=True) as owner:
                owner.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
    assert {size.name for size in sizes if size.kind == "replication_slot"} == {"standby", "standby (state)"}
    (total,) = (size for size in sizes if size.kind == "database")
    assert total.name == psycopg.conninfo.conninfo_to_dict(databases[0])["dbname"]
