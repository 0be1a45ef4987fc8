"""Run ``lakehouse replicate`` as an operator does."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from synapse_lakehouse.config.settings import Settings
from tests.conftest import BIN, environment


@contextmanager
def run_replicate(settings: Settings, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run ``lakehouse replicate``; yield its first output line and the process."""
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
