"""The declarations of the lake's tables in dbt's YAML files: descriptions and keys."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from synapse_lakehouse.config.settings import PROJECT_FOLDER

_MODELS: Final = PROJECT_FOLDER / "dbt" / "models"


@dataclass(frozen=True)
class DeclaredTable:
    """The description and the key columns of a table."""

    description: str
    key: tuple[str, ...]


@cache
def load_declared_tables() -> Mapping[str, DeclaredTable]:
    """Return the declared tables by name, such as ``gold.events``."""
    return {name: table for file in sorted(_MODELS.rglob("_*.yml")) for name, table in _read_file(file)}


def _read_file(file: Path) -> Iterator[tuple[str, DeclaredTable]]:
    content = yaml.load(file.read_bytes(), yaml.CSafeLoader)
    for source in content.get("sources", []):
        for table in source["tables"]:
            yield f"{source.get('schema', source['name'])}.{table['name']}", _declared(table)
    for model in content.get("models", []):
        yield f"{file.relative_to(_MODELS).parts[0]}.{model['name']}", _declared(model)


def _declared(table: Mapping[str, Any]) -> DeclaredTable:
    meta = table.get("config", {}).get("meta", {})
    return DeclaredTable(" ".join(table.get("description", "").split()), tuple(meta.get("primary_key", ())))
