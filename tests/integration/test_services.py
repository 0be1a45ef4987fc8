"""Local services provide several lakes, and serve several users at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import psycopg
from psycopg.conninfo import conninfo_to_dict

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import sample
from synapse_lakehouse.local.services import connect_services, remember_lake


def test_each_homeserver_has_its_own_lake(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    own = Settings(_env_file=None, lakehouse_home=tmp_path)
    other = own.model_copy(update={"synapse_dsn": "postgresql://db/synapse", "synapse_server_name": "[::1]:8448"})

    def database_and_warehouse(configured: Settings, **options: bool) -> tuple[str, str]:
        with connect_services(configured, **options) as settings:
            database = conninfo_to_dict(str(settings.lakehouse_catalog_uri))["dbname"]
            return str(database), settings.warehouse.removeprefix(tmp_path.as_uri())

    assert (
        database_and_warehouse(own)
        == database_and_warehouse(own, source=False, latest=True)
        == ("iceberg", "/warehouse")
    )
    assert database_and_warehouse(other) == ("iceberg-___1__8448", "/warehouse-___1__8448")
    with connect_services(other) as settings:
        remember_lake(other)
        assert database_and_warehouse(settings) == database_and_warehouse(other), (
            "the processes of a run use the resolved settings"
        )
    assert database_and_warehouse(own, source=False, latest=True) == database_and_warehouse(other)
    assert database_and_warehouse(own, source=False) == database_and_warehouse(own) == ("iceberg", "/warehouse")
    remember_lake(own)
    assert database_and_warehouse(own, source=False, latest=True) == ("iceberg", "/warehouse")
    elsewhere = other.model_copy(update={"lakehouse_warehouse": "s3://lake/warehouse"})
    with connect_services(elsewhere) as settings:
        assert settings.warehouse == "s3://lake/warehouse/lake-___1__8448"


def test_concurrent_users_get_the_complete_sample(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    configured = Settings(_env_file=None, lakehouse_home=tmp_path, synapse_server_name=sample.read_server_name())
    barrier = Barrier(3)

    def count_users(_: int) -> object:
        barrier.wait()
        with connect_services(configured) as settings, psycopg.connect(str(settings.synapse_dsn)) as connection:
            return connection.execute("select count(*) from users").fetchone()

    with ThreadPoolExecutor(3) as pool:
        (count,) = set(pool.map(count_users, range(3)))
    assert count != (0,)


def test_a_configured_warehouse_is_not_shared(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    disk = tmp_path / "disk"
    own = Settings(_env_file=None, lakehouse_home=tmp_path, lakehouse_warehouse=f"{disk}/")
    other = own.model_copy(update={"synapse_dsn": "postgresql://db/synapse", "synapse_server_name": "example.org"})

    def warehouse_of(configured: Settings) -> str:
        with connect_services(configured) as settings:
            return settings.warehouse.removeprefix(tmp_path.as_uri())

    assert (warehouse_of(own), warehouse_of(other)) == ("/disk", "/disk/lake-example.org")
