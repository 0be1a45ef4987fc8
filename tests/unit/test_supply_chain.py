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
OWN = "synapse-lakehouse"
UV = shutil.which("uv") or str(PROJECT_FOLDER / ".tools/uv/bin/uv")


def components(kind: str) -> dict[str, dict[str, Any]]:
    """Components of the bill, by name and version."""
    found = [one for one in BILL["components"] if one.get("purl", "").startswith(f"pkg:{kind}/")]
    return {f"{one['name']}=={one['version']}": one for one in found}


def hashes(component: dict[str, Any]) -> set[str]:
    """SHA-256 of a component and of its distributions."""
    places = [component, *component.get("externalReferences", [])]
    return {one["content"] for place in places for one in place.get("hashes", []) if one["alg"] == "SHA-256"}


def test_the_bill_equals_the_locks() -> None:
    assert sbom.SBOM.read_text() == sbom.sbom(UV), "make sbom"


def test_the_bill_has_every_package_with_its_hashes() -> None:
    packages = {f"{one['name']}=={one['version']}": one for one in LOCK["package"] if one["name"] != OWN}
    shipped = components("pypi")

    # What only the groups dev and bench need is not shipped.
    assert shipped.keys() <= packages.keys()
    assert _needed(packages) <= {name.partition("==")[0] for name in shipped}
    for name, component in shipped.items():
        files = [*packages[name].get("wheels", []), *filter(None, [packages[name].get("sdist")])]
        assert hashes(component) == {one["hash"].removeprefix("sha256:") for one in files}, name


def test_the_bill_has_every_jar_with_its_hash() -> None:
    found = {f"{one['group']}:{one['name']}:{one['version']}": hashes(one) for one in components("maven").values()}

    assert found == {coordinates: {digest} for coordinates, digest in jars.read_lock_file().items()}


def test_the_bill_obeys_cyclonedx(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every URI reference is an IRI reference; the parser of IRI references takes minutes for all of the bill's.
    checkers = Draft7Validator.FORMAT_CHECKER.checkers
    monkeypatch.setitem(checkers, "iri-reference", checkers["uri-reference"])
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(sbom.SBOM.read_text()) is None
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(BILL | {"components": 1})) is not None


def test_references_of_the_bill_exist() -> None:
    references = [one["bom-ref"] for one in [BILL["metadata"]["component"], *BILL["components"]]]
    assert len(references) == len(set(references))
    assert {one["ref"] for one in BILL["dependencies"]} <= set(references)
    assert {ref for one in BILL["dependencies"] for ref in one.get("dependsOn", [])} <= set(references)


def test_build_back_ends_have_one_version() -> None:
    pinned = dict(one.split("==") for one in PYPROJECT["tool"]["uv"]["build-constraint-dependencies"])
    built = {one["name"] for one in LOCK["package"] if "sdist" in one and "wheels" not in one}

    assert PYPROJECT["build-system"]["requires"] == [f"hatchling=={pinned['hatchling']}"]
    assert built == {"pyspark"}, "its back-end is setuptools"
    assert "setuptools" in pinned


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
    assert all(re.search(r"@(v\d+\.\d+\.\d+|[0-9a-f]{40})$", one) for one in uses), uses
    assert all(re.search(r":.*\d+(\.|\d)\d+", one) for one in images), images


def _needed(packages: dict[str, Any]) -> set[str]:
    """Names of what the project needs on Linux without extras, as far as no marker decides."""
    (own,) = (one for one in LOCK["package"] if one["name"] == OWN)
    by_name = {one["name"]: one for one in packages.values()}
    found: set[str] = set()
    ahead = [one["name"] for one in own["dependencies"]]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += [one["name"] for one in by_name[name].get("dependencies", []) if "marker" not in one]
    return found
