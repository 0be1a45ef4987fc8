"""What is read of a homeserver.yaml."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def section(config: Path, name: str, error: type[ValueError]) -> Any:
    """The top-level section ``name`` of the file that SYNAPSE_CONFIG names; None if it has none.

    :param error: what is raised, with a message for people, when the file cannot be read.
    """
    try:
        content: Any = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as problem:
        raise error(f"SYNAPSE_CONFIG={config} cannot be read as YAML: {problem}") from problem
    return content.get(name) if isinstance(content, Mapping) else None
