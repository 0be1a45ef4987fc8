"""What the documents name exists: files behind links, settings, make targets, the operator's commands."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from synapse_lakehouse.cli import app
from synapse_lakehouse.config.settings import PROJECT, Settings

DOCUMENTS = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
OPERATORS = set(tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["scripts"])
DEVELOPERS = OPERATORS | {"lint-imports", "pre-commit"}
DECISIONS = sorted((PROJECT / "docs" / "adr").glob("0*.md"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_what_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    targets = set(re.findall(r"`make ([a-z-]+)", text))
    commands = set(re.findall(r"(?:^|`)(?:uv run )?lakehouse ([a-z-]+)", text, re.MULTILINE))
    programs = set(re.findall(r"\buv run (?:--\S+ )*([\w.-]+)", text))
    bare = re.findall(r"(?:^|`)airflow [a-z].*", text, re.MULTILINE)

    assert [link for link in links if not (document.parent / link).exists()] == []
    assert set(re.findall(r"\b(?:LAKEHOUSE|SYNAPSE)_[A-Z_]+\b", text)) <= _variables()
    assert targets <= set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    assert commands <= set(get_command(app).commands)  # type: ignore[attr-defined]
    assert programs <= (DEVELOPERS if document.name == "CONTRIBUTING.md" else OPERATORS)
    assert bare == [], "Airflow's own command knows nothing of LAKEHOUSE_HOME"


def test_every_decision_is_short_and_in_the_index() -> None:
    index = (PROJECT / "docs" / "adr" / "README.md").read_text()

    for number, decision in enumerate(DECISIONS, start=1):
        heading, *lines = decision.read_text().splitlines()
        assert decision.name.startswith(f"{number:04}-")
        assert heading.startswith(f"# {number:04}: ")
        assert f"({decision.name}) | {heading.partition(': ')[2]} |" in index
        assert [line for line in lines if line.startswith("## ")] == ["## Context", "## Decision", "## Consequences"]
        assert len(lines) < 40


def _variables() -> set[str]:
    services = yaml.safe_load((PROJECT / "docker-compose.yaml").read_text())["services"].values()
    return {name.upper() for name in Settings.model_fields} | {
        name for it in services for name in it.get("environment", {})
    }
