"""What tests of single parts share: nothing of what is here starts a server."""

from pathlib import Path

import pytest

from synapse_lakehouse.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with a home of their own."""
    return Settings(_env_file=None, lakehouse_home=tmp_path)
