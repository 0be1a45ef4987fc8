"""The workflows obey GitHub's schema and run the commands that contributors run."""

import json
import os
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from synapse_lakehouse.config.settings import PROJECT_FOLDER

WORKFLOWS = sorted((PROJECT_FOLDER / ".github/workflows").iterdir())


def read_workflow(workflow: str) -> dict[str, Any]:
    """Return the content of a workflow file."""
    content: dict[str, Any] = yaml.safe_load((PROJECT_FOLDER / ".github/workflows" / workflow).read_text())
    return content


def last_commands(workflow: str) -> dict[str, str]:
    """Return the last command of each job."""
    job_items = read_workflow(workflow)["jobs"].items()
    return {name: [step["run"] for step in job["steps"] if "run" in step][-1] for name, job in job_items}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_obeys_githubs_schema(workflow: Path) -> None:
    package = find_spec("check_jsonschema")
    assert package
    assert package.origin
    schema = json.loads((Path(package.origin).parent / "builtin_schemas/vendor/github-workflows.json").read_text())

    jsonschema.validators.validator_for(schema)(schema).validate(read_workflow(workflow.name))


def test_ci_runs_the_commands_of_contributors() -> None:
    commands = (PROJECT_FOLDER / ".ci/run").read_text().splitlines()[-2:]

    assert os.access(PROJECT_FOLDER / ".ci/run", os.X_OK)
    assert commands == ["make check", "exec make test"]
    assert last_commands("ci.yml") == {"lint": "make check", "docs": "make docs", "test": ".ci/run"}


def test_heavy_tests_run_every_night() -> None:
    assert last_commands("nightly.yml") == {"heavy": "make test-heavy"}
    assert "schedule" in read_workflow("nightly.yml")["on"]


def test_workflows_run_on_the_oldest_python() -> None:
    oldest = tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text())["project"]["requires-python"].split(",")[0]
    images = {job["container"]["image"] for path in WORKFLOWS for job in read_workflow(path.name)["jobs"].values()}

    assert oldest == ">=3.11.2", "Debian 12 has 3.11.2"
    assert {image.partition("-")[0] for image in images} == {"debian:bookworm"}
    assert "export UV_PYTHON=/usr/bin/python3.11\n" in (PROJECT_FOLDER / ".ci/run").read_text()
    if os.environ.get("UV_PYTHON") == "/usr/bin/python3.11":
        assert sys.version_info[:3] == (3, 11, 2)
