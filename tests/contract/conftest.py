"""Facts about the installed Synapse, with which tests compare the catalogue."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sample.environment import synapse_python


@pytest.fixture(scope="session")
def synapse_facts() -> dict[str, Any]:
    """Return facts about the installed Synapse; see synapse_facts.py."""
    script = Path(__file__).with_name("synapse_facts.py")
    process = subprocess.run([synapse_python(), script], capture_output=True, text=True, check=True)
    facts: dict[str, Any] = json.loads(process.stdout)
    return facts
