"""libpq's variables do not affect the embedded PostgreSQL, and affect the source as in libpq."""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import FORMAT_PROPERTIES, RELEASES_TABLE
from synapse_lakehouse.config import libpq_variables
from synapse_lakehouse.config.libpq_variables import HIDDEN_PREFIX
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.local.services import connect_services
from synapse_lakehouse.postgres.connection import connect
from tests.conftest import lakehouse

FOR_THE_SOURCE = (
    {"PGSSLMODE": "verify-full", "PGREQUIREAUTH": "none", "PGCHANNELBINDING": "require", "PGGSSENCMODE": "require"},
    {"PGHOSTADDR": "192.0.2.1"},
    {"PGSERVICE": "synapse"},
    {"PGTARGETSESSIONATTRS": "standby", "PGHOST": "192.0.2.1", "PGPORT": "1", "PGUSER": "nobody", "PGDATABASE": "none"},
    {
        "PGOPTIONS": "-c search_path=synapse",
        "PGTZ": "Asia/Tokyo",
        "PGDATESTYLE": "German",
        "PGCLIENTENCODING": "LATIN1",
    },
)


@pytest.fixture(autouse=True)
def _remove_hidden_variables() -> Iterator[None]:
    yield
    for name in [name for name in os.environ if name.startswith(HIDDEN_PREFIX)]:
        del os.environ[name]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Yield settings without source and catalog, for a home whose lake has one release."""
    configured = Settings(_env_file=None, lakehouse_home=tmp_path_factory.mktemp("home"))
    run = Run("published", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))
    with connect_services(configured) as actual, closing(open_catalog(actual)) as catalog:
        catalog.create_namespace("audit")
        catalog.create_table(RELEASES_TABLE, store.AUDIT_SCHEMAS[RELEASES_TABLE], properties=FORMAT_PROPERTIES)
        release = {"release": 1, "branch": run.branch, "tag": run.tag, "server_name": "example.org"}
        empty: dict[str, list[object]] = {"positions": [], "tables": [], "views": []}
        counts = {"checks_passed": 1, "checks_warned": 0, "published_at": run.end, "accepted_at": run.end}
        store.append_audit_rows(catalog, "audit.releases", [release | counts | empty], run)
        yield configured


def test_variables_for_the_source_do_not_change_output(embedded: Settings) -> None:
    expected = lakehouse(embedded, "releases", "--format", "json")
    assert json.loads(expected.stdout)[0]["release"] == 1
    with connect_services(embedded) as actual:
        # The processes of a run receive the resolved catalog URI.
        resolved = embedded.model_copy(update={"lakehouse_catalog_uri": actual.lakehouse_catalog_uri})
        everything = {name: value for variables in FOR_THE_SOURCE for name, value in variables.items()}
        for settings, variables in (*((embedded, item) for item in FOR_THE_SOURCE), (resolved, everything)):
            result = lakehouse(settings, "releases", "--format", "json", **variables)
            assert (result.returncode, result.stdout) == (0, expected.stdout), result.stderr


def test_a_uri_of_the_embedded_server_is_unchanged(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGSSLMODE", "require")
    reloaded = Settings(_env_file=None, **settings.model_dump(exclude_none=True))
    assert (reloaded.lakehouse_catalog_uri, reloaded.synapse_dsn) == (
        settings.lakehouse_catalog_uri,
        settings.synapse_dsn,
    )


def test_connections_to_the_source_use_the_variables(
    server: EmbeddedServer, source_copy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGPASSWORD", server.password)
    monkeypatch.setenv("PGOPTIONS", "-c search_path=elsewhere")
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")
    dsn = f"postgresql://postgres@127.0.0.1:{server.port}/{conninfo_to_dict(source_copy)['dbname']}"
    configured = Settings(
        _env_file=None, lakehouse_home=tmp_path, synapse_dsn=dsn, synapse_server_name="synapse.example"
    )
    libpq_variables.hide_from_libpq()
    with connect(configured) as connection:
        (count,) = connection.execute("select count(*) from users").fetchone() or (0,)
        assert count > 0
        assert connection.execute("show TimeZone").fetchone() == ("UTC",)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(dsn)


def test_the_catalog_does_not_use_pgoptions_in_any_process(embedded: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is like an Airflow that another program started: it did not hide the variable."""
    with connect_services(embedded) as actual:
        monkeypatch.setenv("PGOPTIONS", "-c search_path=synapse")
        with closing(open_catalog(actual)) as catalog:
            assert catalog.table_exists(RELEASES_TABLE)
        assert RELEASES_TABLE in list_catalog_entries(actual)


def test_a_configuration_of_pyiceberg_does_not_apply(embedded: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"catalog": {"lake": {"s3.access-key-id": "other", "py-io-impl": "other", "table-default.owner": "other"}}}
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG.config", other)
    with connect_services(embedded) as actual, closing(open_catalog(actual)) as catalog:
        assert "other" not in catalog.properties.values()
