"""The exceptions of the product have one base class."""

import ast
from collections.abc import Iterator

from synapse_lakehouse.config.settings import PROJECT_FOLDER

BASE = "LakehouseError"


def test_every_exception_derives_from_the_base() -> None:
    exceptions = {
        name: parents
        for name, parents in _classes()
        if any(parent.endswith(("Error", "Exception")) for parent in parents)
    }
    derived = {BASE}
    while new_names := {name for name, parents in exceptions.items() if derived & parents} - derived:
        derived |= new_names
    assert exceptions.keys() == derived


def _classes() -> Iterator[tuple[str, set[str]]]:
    for folder in (PROJECT_FOLDER / "src", PROJECT_FOLDER / "expectations"):
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    yield node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases}
