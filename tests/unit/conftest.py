"""Shared fixtures. A unit test that starts a JVM or a server fails."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synapse_lakehouse.config.settings import Settings

SERVERS = frozenset({"initdb", "java", "postgres", "redis-server", "spark-submit"})
"""Programs that a unit test may not start, except files with these names in its temporary folder."""

_folders: list[Path] = []
"""Temporary folder of the running unit test; empty between tests."""


def _refuse_servers(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _folders:
        command = [Path(str(word)) for word in arguments[1]]
        if servers := [word for word in command if word.name in SERVERS and not word.is_relative_to(_folders[-1])]:
            pytest.fail(f"A unit test may not start {servers[0].name}: move the test to another folder of tests/.")


sys.addaudithook(_refuse_servers)


@pytest.fixture(autouse=True)
def _without_servers(tmp_path: Path) -> Iterator[None]:
    _folders.append(tmp_path)
    yield
    _folders.pop()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings with a temporary LAKEHOUSE_HOME."""
    return Settings(_env_file=None, lakehouse_home=tmp_path)
