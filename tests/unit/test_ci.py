"""The CI's workflow obeys GitHub's schema and runs what the README tells everybody to run."""

import json
import os
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from synapse_lakehouse.settings import PROJECT

WORKFLOW: dict[str, Any] = yaml.safe_load((PROJECT / ".github/workflows/ci.yml").read_text())


def test_the_workflow_obeys_githubs_schema() -> None:
    package = Path(str(find_spec("check_jsonschema").origin)).parent  # type: ignore[union-attr]
    schema = json.loads((package / "builtin_schemas/vendor/github-workflows.json").read_text())

    jsonschema.validators.validator_for(schema)(schema).validate(WORKFLOW)


def test_it_runs_the_same_command_as_everybody() -> None:
    commands = [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]

    assert commands[-1] == ".ci/run"
    assert os.access(PROJECT / ".ci/run", os.X_OK)
    assert (PROJECT / ".ci/run").read_text().splitlines()[-1] == "exec make test"


def test_it_runs_on_the_oldest_python() -> None:
    oldest = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["requires-python"].split(",")[0]
    (image,) = {job["container"]["image"] for job in WORKFLOW["jobs"].values()}

    assert oldest == ">=3.11.2", "Debian 12 has 3.11.2"
    assert image.startswith("debian:bookworm-")
    assert "export UV_PYTHON=/usr/bin/python3.11\n" in (PROJECT / ".ci/run").read_text()
    if os.environ.get("UV_PYTHON") == "/usr/bin/python3.11":
        assert sys.version_info[:3] == (3, 11, 2)
