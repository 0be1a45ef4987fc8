"""CONTRIBUTING's limits: a Python file has at most 300 lines, a function at most 50."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from synapse_lakehouse.config.settings import PROJECT_FOLDER

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50


def test_files_and_functions_are_short() -> None:
    folders = tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    files = [file for folder in folders for file in (PROJECT_FOLDER / folder).rglob("*.py")]
    assert len(files) > 600
    assert [finding for file in files for finding in _long_parts(file)] == []


def _long_parts(file: Path) -> Iterator[str]:
    text, name = file.read_text(encoding="utf-8"), file.relative_to(PROJECT_FOLDER)
    if (lines := len(text.splitlines())) > MAX_FILE_LINES:
        yield f"{name}: {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno
            if (lines := node.end_lineno - node.lineno + 1) > MAX_FUNCTION_LINES:
                yield f"{name}:{node.lineno} {node.name}: {lines} lines"
