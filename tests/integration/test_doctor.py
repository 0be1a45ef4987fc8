"""``lakehouse doctor`` on a Synapse database as it should be, and on ones that are not."""

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from synapse_lakehouse.cli import app
from synapse_lakehouse.embedded.postgres import Server, free_port
from synapse_lakehouse.settings import Settings

Findings = dict[str, list[dict[str, str]]]
Examine = Callable[..., tuple[int, Findings]]


@pytest.fixture
def examine(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Runs the command with changed settings: its exit code, and its findings by subject."""
    monkeypatch.chdir(tmp_path)

    def run(**changes: object) -> tuple[int, Findings]:
        environment = settings.model_copy(update=changes).environment()
        done = CliRunner().invoke(app, ["doctor", "--format", "json"], env=environment)
        found: Findings = {}
        for one in json.loads(done.stdout):
            found.setdefault(one["subject"], []).append(one)
        return done.exit_code, found

    return run


@pytest.fixture
def reader(source_copy: str) -> Iterator[str]:
    """The copy of the source, for a role that may log in to it and nothing else."""
    name = f"reader_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(f"create role {name} login password 'p'".encode())
        yield make_conninfo(source_copy, user=name, password="p")
        owner.execute(f"drop owned by {name}; drop role {name}".encode())


def test_all_is_well(examine: Examine) -> None:
    code, found = examine()
    assert code == 0
    assert {"Java", "jars", "catalogue", "source", "clock", "role", "schema", "drift", "rights", "disk"} <= set(found)
    assert not [one for findings in found.values() for one in findings if one["level"] == "FAIL"]


def test_a_role_that_can_write_is_warned_of(examine: Examine, source_copy: str) -> None:
    code, found = examine(synapse_dsn=source_copy)
    (role,) = found["role"]
    assert (code, role["level"]) == (0, "WARN")
    assert "is a superuser" in role["message"]
    assert "CREATE ROLE lakehouse" in role["advice"]


def test_missing_rights_come_with_the_grants_that_mend_them(examine: Examine, reader: str, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(f"grant select on schema_version to {_user(reader)}".encode())
        code, found = examine(synapse_dsn=reader)
        assert code == 1
        assert found["role"][0]["message"].endswith("can only read")
        grants = [grant for one in found["rights"] for grant in re.findall(r"GRANT .*;", one["message"])]
        assert any("ON receipts_linearized TO" in grant for grant in grants)
        for grant in grants:
            owner.execute(grant.encode())
    code, found = examine(synapse_dsn=reader)
    assert (code, found["rights"][0]["level"]) == (0, "OK")


def test_a_missing_column_is_drift(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("alter table events drop column sender")
    code, found = examine(synapse_dsn=source_copy)
    assert code == 1
    assert "events has no column sender" in found["drift"][0]["message"]


def test_an_unsupported_schema_version(examine: Examine, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("update schema_version set version = 1")
    code, found = examine(synapse_dsn=source_copy)
    assert (code, found["schema"][0]["advice"]) == (1, "Upgrade Synapse.")


def test_a_database_that_is_not_synapses(examine: Examine, server: Server) -> None:
    code, found = examine(synapse_dsn=server.dsn())
    assert code == 1
    assert "not a Synapse homeserver's" in found["schema"][0]["message"]


def test_an_unreachable_source_leaves_the_rest_examined(examine: Examine) -> None:
    code, found = examine(synapse_dsn=f"postgresql://someone:secret-word@127.0.0.1:{free_port()}/synapse")
    assert (code, found["source"][0]["level"]) == (1, "FAIL")
    assert "lake" in found
    assert "secret-word" not in json.dumps(found)


def test_an_unreachable_catalog(examine: Examine) -> None:
    code, found = examine(lakehouse_catalog_uri=f"postgresql://someone:secret-word@127.0.0.1:{free_port()}/iceberg")
    assert (code, found["lake"][0]["level"]) == (1, "FAIL")
    assert "secret-word" not in json.dumps(found)


def test_before_the_first_run(examine: Examine, tmp_path: Path) -> None:
    fresh = {"synapse_dsn": None, "synapse_server_name": None, "lakehouse_catalog_uri": None}
    code, found = examine(**fresh, lakehouse_home=tmp_path / "home", lakehouse_warehouse=None)
    assert (code, found["set-up"][0]["level"]) == (0, "WARN")
    assert not (tmp_path / "home").exists()


def _user(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["user"])
