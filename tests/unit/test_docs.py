"""Every file, setting, make target and command in the documents exists."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from docs.generate import layers_picture, pages
from sample.excluded_columns import EXCLUDED, excluded_columns
from synapse_lakehouse.audit.schemas import load_audit_tables
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings

DOCUMENTS = sorted([*PROJECT_FOLDER.glob("*.md"), *(PROJECT_FOLDER / "docs").rglob("*.md")])
OPERATORS = set(tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text())["project"]["scripts"])
DEVELOPERS = OPERATORS | {"lint-imports", "pre-commit"}
DECISIONS = sorted((PROJECT_FOLDER / "docs" / "adr").glob("0*.md"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT_FOLDER)))
def test_names_in_a_document_exist(document: Path) -> None:
    text = document.read_text()
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", text)
    targets = set(re.findall(r"`make ([a-z-]+)", text))
    commands = set(re.findall(r"(?:^|`)(?:uv run )?lakehouse (?:--homeserver [a-z]+ )?([a-z-]+)", text, re.MULTILINE))
    programs = set(re.findall(r"\buv run (?:--\S+ )*([\w.-]+)", text))
    airflow_commands = re.findall(r"(?:^|`)airflow [a-z].*", text, re.MULTILINE)

    assert [link for link, _ in links if not (document.parent / link).exists()] == []
    assert [link for link in links if link[1] and link[1] not in _anchors(document.parent / link[0], document)] == []
    assert set(re.findall(r"\b(?:LAKEHOUSE|SYNAPSE)_[A-Z_]+\b", text)) <= _variables()
    assert targets <= set(re.findall(r"^([a-z-]+):", (PROJECT_FOLDER / "Makefile").read_text(), re.MULTILINE))
    assert commands <= set(get_command(app).commands)  # type: ignore[attr-defined]
    assert programs <= (DEVELOPERS if document.name == "CONTRIBUTING.md" else OPERATORS)
    assert airflow_commands == [], "the command `airflow` does not read LAKEHOUSE_HOME"


def test_every_decision_is_short_and_in_the_index() -> None:
    index = (PROJECT_FOLDER / "docs" / "adr" / "README.md").read_text()

    for number, decision in enumerate(DECISIONS, start=1):
        heading, *lines = decision.read_text().splitlines()
        assert decision.name.startswith(f"{number:04}-")
        assert heading.startswith(f"# {number:04}: ")
        assert f"({decision.name}) | {heading.partition(': ')[2]} |" in index
        assert [line for line in lines if line.startswith("## ")] == ["## Context", "## Decision", "## Consequences"]
        assert re.match(r"accepted|superseded by \[", lines[1].removeprefix("Status: "))
        assert len(lines) < 42


def test_every_page_is_in_an_index() -> None:
    docs = PROJECT_FOLDER / "docs"
    indexes = [docs / "index.md", docs / "adr" / "README.md", docs / "runbooks" / "README.md"]
    linked = {
        (index.parent / link).resolve()
        for index in indexes
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", index.read_text())
    }
    assert {page.resolve() for page in docs.rglob("*.md")} - linked == {docs / "index.md"}


def test_the_files_that_contributing_names_exist() -> None:
    text = (PROJECT_FOLDER / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:src|dbt|docs|expectations|spark_apps|dags|tests|docker)[\w./-]*)`", text)
    assert len(paths) > 40
    assert [path for path in paths if not (PROJECT_FOLDER / path).exists()] == []
    first = re.search(r"\]\(([^)]+)\)", text)
    assert first
    assert first[1] == "docs/glossary.md"


def test_generated_pages_equal_their_declarations() -> None:
    """After a change of a declaration, run `make generate`."""
    assert [str(page) for page, content in pages().items() if page.read_text(encoding="utf-8") != content] == []


def test_the_list_of_excluded_columns_is_generated() -> None:
    assert EXCLUDED.read_text(encoding="utf-8") == excluded_columns()


def test_the_layers_picture_has_all_layers() -> None:
    contracts = tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    architecture = (PROJECT_FOLDER / "docs" / "architecture.md").read_text()
    for package in {name for layer in layers for name in re.findall(r"\w+", layer)}:
        assert re.search(rf"\b{package}\b", layers_picture())
        assert f"| `{package}` | " in architecture


def test_keys_of_audit_tables_are_columns() -> None:
    for name, table in load_audit_tables().items():
        assert {*table.key, table.written_at} <= set(table.schema.names), name


def _anchors(target: Path, document: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub generates them."""
    text = (document if target.is_dir() else target).read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _variables() -> set[str]:
    services = yaml.safe_load((PROJECT_FOLDER / "docker-compose.yaml").read_text())["services"].values()
    return {name.upper() for name in Settings.model_fields} | {
        name for service in services for name in service.get("environment", {})
    }
