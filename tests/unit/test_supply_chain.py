"""All installed packages have a version and a SHA-256 in a lock, and are in the bill of materials."""

import json
import re
import shutil
import tomllib
from typing import Any

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from jsonschema.validators import Draft7Validator

from supply_chain import sbom
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.java import jars

PYPROJECT: dict[str, Any] = tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text())
LOCK: dict[str, Any] = tomllib.loads((PROJECT_FOLDER / "uv.lock").read_text())
BILL: dict[str, Any] = json.loads(sbom.SBOM.read_text())
PROJECT = "synapse-lakehouse"
UV = shutil.which("uv") or str(PROJECT_FOLDER / ".tools/uv/bin/uv")


def components(kind: str) -> dict[str, dict[str, Any]]:
    """Return the components of the bill by name and version."""
    actual = [component for component in BILL["components"] if component.get("purl", "").startswith(f"pkg:{kind}/")]
    return {f"{item['name']}=={item['version']}": item for item in actual}


def hashes(component: dict[str, Any]) -> set[str]:
    """Return the SHA-256 of a component and of its distributions."""
    entries = [component, *component.get("externalReferences", [])]
    return {item["content"] for entry in entries for item in entry.get("hashes", []) if item["alg"] == "SHA-256"}


def test_the_bill_equals_the_locks() -> None:
    assert sbom.SBOM.read_text() == sbom.sbom(UV), "make sbom"


def test_the_bill_has_every_package_with_its_hashes() -> None:
    packages = {f"{item['name']}=={item['version']}": item for item in LOCK["package"] if item["name"] != PROJECT}
    bill_packages = components("pypi")

    # Packages that only the groups dev and bench need are not in the bill.
    assert bill_packages.keys() <= packages.keys()
    assert _required_names(packages) <= {name.partition("==")[0] for name in bill_packages}
    for name, component in bill_packages.items():
        files = [*packages[name].get("wheels", []), *filter(None, [packages[name].get("sdist")])]
        assert hashes(component) == {file["hash"].removeprefix("sha256:") for file in files}, name


def test_the_bill_has_every_jar_with_its_hash() -> None:
    actual = {f"{row['group']}:{row['name']}:{row['version']}": hashes(row) for row in components("maven").values()}

    assert actual == {coordinates: {digest} for coordinates, digest in jars.read_lock_file().items()}


def test_the_bill_obeys_cyclonedx(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every URI reference is an IRI reference. The parser of IRI references takes minutes for the bill.
    checkers = Draft7Validator.FORMAT_CHECKER.checkers
    monkeypatch.setitem(checkers, "iri-reference", checkers["uri-reference"])
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(sbom.SBOM.read_text()) is None
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(BILL | {"components": 1})) is not None


def test_references_of_the_bill_exist() -> None:
    references = [item["bom-ref"] for item in [BILL["metadata"]["component"], *BILL["components"]]]
    assert len(references) == len(set(references))
    assert {dependency["ref"] for dependency in BILL["dependencies"]} <= set(references)
    assert {ref for dependency in BILL["dependencies"] for ref in dependency.get("dependsOn", [])} <= set(references)


def test_build_back_ends_have_one_version() -> None:
    versions = dict(item.split("==") for item in PYPROJECT["tool"]["uv"]["build-constraint-dependencies"])
    source_packages = {item["name"] for item in LOCK["package"] if "sdist" in item and "wheels" not in item}

    assert PYPROJECT["build-system"]["requires"] == [f"hatchling=={versions['hatchling']}"]
    assert source_packages == {"pyspark"}, "its back-end is setuptools"
    assert "setuptools" in versions


def test_uv_is_installed_by_its_hash() -> None:
    (version,) = re.findall(r"^uv==(\S+)", (PROJECT_FOLDER / "requirements-uv.txt").read_text(), re.MULTILINE)
    for path in ("Makefile", "docker/Dockerfile"):
        (install,) = re.findall(r"pip install .+", (PROJECT_FOLDER / path).read_text())
        assert "--require-hashes" in install
        assert install.split()[-1] == "requirements-uv.txt"
    assert version == "0.13.8"


def test_actions_and_images_of_the_workflows_have_exact_versions() -> None:
    workflows = [yaml.safe_load(path.read_text()) for path in (PROJECT_FOLDER / ".github/workflows").iterdir()]
    jobs = [job for workflow in workflows for job in workflow["jobs"].values()]
    uses = [step["uses"] for job in jobs for step in job["steps"] if "uses" in step]
    images = [job["container"]["image"] for job in jobs if "container" in job]

    assert uses
    assert all(re.search(r"@(v\d+\.\d+\.\d+|[0-9a-f]{40})$", use) for use in uses), uses
    assert all(re.search(r":.*\d+(\.|\d)\d+", item) for item in images), images


def _required_names(packages: dict[str, Any]) -> set[str]:
    """Return the names of packages that the project requires without extras and markers."""
    (project,) = (item for item in LOCK["package"] if item["name"] == PROJECT)
    by_name = {item["name"]: item for item in packages.values()}
    names: set[str] = set()
    queue = [dependency["name"] for dependency in project["dependencies"]]
    while queue:
        name = queue.pop()
        if name not in names:
            names.add(name)
            queue += [item["name"] for item in by_name[name].get("dependencies", []) if "marker" not in item]
    return names
