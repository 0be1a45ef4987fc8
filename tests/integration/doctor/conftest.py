"""Fixtures: a runner of ``lakehouse doctor``, and a reader role."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from synapse_lakehouse import catalogue
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access import public_rights
from synapse_lakehouse.postgres.access.grants import build_grants_sql
from tests.support.doctor import Examine, Findings


@pytest.fixture
def examine(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Return a function that runs the command with changed settings: exit code, and findings by subject."""
    monkeypatch.chdir(tmp_path)

    def run(*options: str, **changes: object) -> tuple[int, Findings]:
        environment = settings.model_copy(update=changes).to_environment()
        result = CliRunner().invoke(app, ["doctor", *options, "--format", "json"], env=environment)
        results: Findings = {}
        for finding in json.loads(result.stdout):
            results.setdefault(finding["subject"], []).append(finding)
        return result.exit_code, results

    return run


@pytest.fixture
def reader(source_copy: str) -> Iterator[str]:
    """Yield the URI of the source copy for a role that ``lakehouse grants`` created and hardened."""
    name = f"reader_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(build_grants_sql(catalogue.load_catalogue(), Settings(_env_file=None), name).encode())
        owner.execute(public_rights.build_hardening_sql(name).encode())
        owner.execute(f"alter role {name} password 'p'".encode())
        yield make_conninfo(source_copy, user=name, password="p")
        owner.execute(f"reassign owned by {name} to postgres; drop owned by {name}; drop role {name}".encode())
