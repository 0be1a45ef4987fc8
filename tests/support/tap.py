"""The replication tap as an operator runs it."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.replication.tap.redis_client import CLIENT_NAME
from tests.conftest import BIN, environment


@contextmanager
def replicating(settings: Settings, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``lakehouse replicate`` with what it said first: that it is at work."""
    command = subprocess.Popen(
        [BIN / "lakehouse", "replicate", *arguments], env=environment(settings), cwd=settings.lakehouse_home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert command.stdout
        said = command.stdout.readline()
        assert said, command.communicate()[1]
        yield said, command
    finally:
        command.kill()
        command.communicate()


@contextmanager
def tapping(settings: Settings, hub: Redis) -> Iterator[subprocess.Popen[str]]:
    """``lakehouse replicate tap``, from when it listens."""
    tap = subprocess.Popen(
        [BIN / "lakehouse", "replicate", "tap"], env=environment(settings), cwd=settings.lakehouse_home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not any(one["name"] == CLIENT_NAME for one in hub.client_list(_type="pubsub")):
            assert tap.poll() is None, tap.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield tap
    finally:
        tap.kill()
        tap.communicate()
