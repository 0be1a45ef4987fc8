"""``make check`` runs every tool, on all Python files."""

import subprocess
import tomllib

from synapse_lakehouse.config.settings import PROJECT_FOLDER

CHECKS = ["ruff format --check .", "ruff check .", "lint-imports", "mypy"]


def test_make_check_runs_every_tool() -> None:
    command = ["make", "--no-print-directory", "--dry-run", "check"]
    result = subprocess.run(command, cwd=PROJECT_FOLDER, capture_output=True, text=True, check=True)
    assert [line.partition(" run --locked ")[2] for line in result.stdout.splitlines()[-len(CHECKS) :]] == CHECKS


def test_the_types_of_every_file_are_checked() -> None:
    """Mypy is strict, and checks every folder that contains Python files of the project."""
    mypy = tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text())["tool"]["mypy"]
    assert mypy["strict"]
    folders = [entry for entry in PROJECT_FOLDER.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    assert {folder.name for folder in folders if next(folder.rglob("*.py"), None)} == set(mypy["files"])
    exceptions = {key for override in mypy["overrides"] for key in override.keys() - {"module"}}
    assert exceptions == {"ignore_missing_imports", "follow_untyped_imports"}
