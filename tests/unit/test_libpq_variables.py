"""libpq's variables affect connections that an operator configures, and no connection to the local PostgreSQL."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from synapse_lakehouse.config import libpq_variables
from synapse_lakehouse.config.libpq_variables import CATALOG_PARAMETERS, HIDDEN_PREFIX
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog import catalog_uri


@pytest.fixture(autouse=True)
def _remove_hidden_variables() -> Iterator[None]:
    yield
    for name in [name for name in os.environ if name.startswith(HIDDEN_PREFIX)]:
        del os.environ[name]


def test_every_variable_of_libpq_is_listed() -> None:
    actual = {
        default.envvar.decode(): default.keyword.decode() for default in Conninfo.get_defaults() if default.envvar
    }
    assert actual.pop("PGOPTIONS") == "options"
    assert actual == libpq_variables.PARAMETER_BY_VARIABLE


@pytest.mark.parametrize(
    ("uri", "variables", "added_parameters"),
    [
        ("postgresql://u@h/d", {"PGPASSWORD": "p@/?&"}, {"password": "p@/?&"}),
        ("postgresql://u:p@h/d", {"PGPASSWORD": "other", "PGSSLMODE": "require"}, {"sslmode": "require"}),
        ("postgresql://u:pa?ss@h/d", {"PGSSLMODE": "require", "PGPORT": "7"}, {"sslmode": "require", "port": "7"}),
        ("postgresql://h/d?application_name=a@b", {"PGUSER": "u"}, {"user": "u"}),
        ("host=h dbname=d", {"PGPASSWORD": r"it's \p"}, {"password": r"it's \p"}),
        ("postgresql:///d", {"PGHOST": "/run/postgresql", "PGHOSTADDR": "192.0.2.1"},
         {"host": "/run/postgresql", "hostaddr": "192.0.2.1"}),
        ("postgresql://h/d", {"PGOPTIONS": "-c search_path=x", "PGTZ": "Asia/Tokyo"}, {}),
        ("postgresql://u:p@h/d?nonsense=1", {"PGSSLMODE": "require"}, None),
    ],
)  # fmt: skip
def test_a_uri_is_completed_as_libpq_does(
    uri: str, variables: dict[str, str], added_parameters: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        completed_uri = libpq_variables.apply_to_uri(uri)
        assert (
            (completed_uri == uri)
            if added_parameters is None
            else (conninfo_to_dict(completed_uri) == conninfo_to_dict(uri) | added_parameters)
        )
        libpq_variables.hide_from_libpq()
        assert not variables.keys() & os.environ.keys()


def test_child_processes_get_parameters_but_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's tasks read the DSN of a homeserver from its file, after ``lakehouse ui`` hid the variables."""
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    libpq_variables.hide_from_libpq()
    script = "from synapse_lakehouse.config.libpq_variables import apply_to_uri; print(apply_to_uri('postgresql:///d'))"
    result = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=True)
    assert conninfo_to_dict(result.stdout.strip()) == {"dbname": "d", "sslmode": "verify-full"}
    assert "PGSSLMODE" not in os.environ


def test_a_service_has_precedence_over_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "services").write_text("# ours\n[synapse]\nsslmode=verify-full\nhost = db\n[other]\nport=7\n")
    for name, value in {
        "PGSERVICEFILE": str(tmp_path / "services"),
        "PGSERVICE": "synapse",
        "PGSSLMODE": "prefer",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PGPORT", "5433")
    parameters = conninfo_to_dict(libpq_variables.apply_to_uri("postgresql:///d"))
    assert parameters == {"dbname": "d", "service": "synapse", "port": "5433"}


def test_the_catalog_accepts_spark_s_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*libpq_variables.PARAMETER_BY_VARIABLE, "PGOPTIONS"):
        monkeypatch.setenv(name, "7" if name in {"PGPORT", "PGCONNECT_TIMEOUT"} else "prefer")
    settings = Settings(
        _env_file=None,
        lakehouse_catalog_uri="postgresql://h/d",
        synapse_dsn="postgresql://h/d",
        synapse_server_name="s",
    )
    actual = catalog_uri.parse_libpq_uri(str(settings.lakehouse_catalog_uri))
    assert actual.keys() - {"options"} == CATALOG_PARAMETERS
    assert "password" not in catalog_uri.to_jdbc_url(actual)
    assert {"hostaddr", "sslcrl"} <= conninfo_to_dict(str(settings.synapse_dsn)).keys()
    http = Settings(_env_file=None, lakehouse_catalog_uri="https://h/api")
    assert http.lakehouse_catalog_uri == "https://h/api"
