"""The replication tap as an operator runs it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from synapse_lakehouse.config.settings import Settings
from tests.conftest import BIN, environment


@contextmanager
def replicating(settings: Settings, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``lakehouse replicate`` after its first output line."""
    command = subprocess.Popen(
        [BIN / "lakehouse", "replicate", *arguments], env=environment(settings), cwd=settings.lakehouse_home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert command.stdout
        line = command.stdout.readline()
        assert line, command.communicate()[1]
        yield line, command
    finally:
        command.kill()
        command.communicate()
