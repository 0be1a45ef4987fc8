"""``.env.example`` has the names, order, defaults and descriptions of the settings class."""

import json
import os
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings

EXAMPLE = PROJECT_FOLDER / ".env.example"


def test_the_example_has_all_settings() -> None:
    header, _, actual = EXAMPLE.read_text().partition("\n\n")
    expected = "\n\n".join(_entry(name, field) for name, field in Settings.model_fields.items()) + "\n"

    assert actual == expected, f"Put this below the header of .env.example:\n\n{expected}"
    assert all(line.startswith("# ") for line in header.splitlines())


def test_a_copy_of_the_example_changes_nothing(no_settings: None) -> None:
    assert Settings(_env_file=EXAMPLE) == Settings(_env_file=None)


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in {name.upper() for name in Settings.model_fields} & set(os.environ):
        monkeypatch.delenv(name)


def _entry(name: str, field: FieldInfo) -> str:
    return f"# {field.description}\n{name.upper()}={_format_default(field.default)}"


def _format_default(default: object) -> str:
    if default is None:
        return ""
    return json.dumps(default) if isinstance(default, dict) else str(default)


def test_a_changed_copy_has_its_own_warehouse() -> None:
    settings = Settings(_env_file=None, lakehouse_warehouse="/one")
    assert settings.warehouse == "file:///one"
    assert settings.model_copy(update={"lakehouse_warehouse": "/two"}).warehouse == "file:///two"
