"""The Makefile uses an installed uv that is new enough for the lock, and executes no value of a variable."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER

PROJECT_UV = ".tools/uv/bin/uv"
OLDEST_VERSION = tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text())["tool"]["uv"][
    "required-version"
].removeprefix(">=")


def selected_uv(tmp_path: Path, version: str | None) -> str:
    """Return the uv that ``make format`` runs if uv ``version``, or no uv, is installed."""
    if version:
        (tmp_path / "uv").write_text(f"#!/bin/sh\necho 'uv {version} (x86_64-unknown-linux-gnu)'\n")
        (tmp_path / "uv").chmod(0o755)
    paths = [path for path in os.environ["PATH"].split(":") if not (Path(path) / "uv").exists()]
    environment = os.environ | {"PATH": ":".join([str(tmp_path), *paths])}
    command = ["make", "--no-print-directory", "--dry-run", "format"]
    result = subprocess.run(command, cwd=PROJECT_FOLDER, env=environment, capture_output=True, text=True, check=True)
    return result.stdout.splitlines()[-1].split()[0]


@pytest.mark.parametrize("version", [OLDEST_VERSION, "0.9.10", "0.13.8", "1.0.0"])
def test_an_installed_uv_is_used(tmp_path: Path, version: str) -> None:
    assert selected_uv(tmp_path, version) == str(tmp_path / "uv")


@pytest.mark.parametrize("version", [None, "0.9.7", "0.4.30"])
def test_an_old_uv_is_not_used(tmp_path: Path, version: str | None) -> None:
    assert selected_uv(tmp_path, version) == PROJECT_UV


@pytest.mark.parametrize(("target", "value"), [("run", "DATE"), ("ui", "PORT")])
def test_values_of_variables_are_data(target: str, value: str) -> None:
    command = ["make", "--no-print-directory", "--dry-run", target, f"{value}=1; touch evil"]
    result = subprocess.run(command, cwd=PROJECT_FOLDER, capture_output=True, text=True, check=True)
    assert f'"${value}"' in result.stdout
    assert "evil" not in result.stdout
