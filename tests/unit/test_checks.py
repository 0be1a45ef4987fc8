"""What `make check` checks holds."""

import subprocess

import pytest

from synapse_lakehouse.settings import PROJECT
from tests.conftest import BIN


@pytest.mark.parametrize(
    "check",
    ["ruff format --check .", "ruff check .", "lint-imports", pytest.param("mypy", marks=pytest.mark.heavy)],
)
def test_a_check_holds(check: str) -> None:
    name, *arguments = check.split()
    done = subprocess.run([BIN / name, *arguments], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"uv) run --locked {check}\n" in (PROJECT / "Makefile").read_text().lower()
