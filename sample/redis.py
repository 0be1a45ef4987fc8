"""Debian's redis-server on a free loopback port, without persistence."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sample.processes import ServiceError, free_ports, run, started, wait_until


def redis_server() -> str:
    """Path of the redis-server program, installed from Debian when it is missing and this user may.

    :raises ServiceError: when it is missing and cannot be installed.
    """
    if actual := shutil.which("redis-server"):
        return actual
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ServiceError(
            "redis-server is not installed: Synapse's workers talk to each other through it. "
            "Install it with: sudo apt-get install redis-server"
        )
    run(["apt-get", "update"], "apt-get update")
    # This module starts the server: prevent that the package starts a service.
    run(
        ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1",
         "apt-get", "install", "--yes", "--no-install-recommends", "redis-server"],
        "Installing redis-server",
    )  # fmt: skip
    if actual := shutil.which("redis-server"):
        return actual
    raise ServiceError("redis-server was installed but is not on PATH")


@contextmanager
def redis(workdir: Path, log: Path, port: int | None = None) -> Iterator[int]:
    """Redis running on 127.0.0.1 while the context lasts, by default on a free port; yields its port."""
    port = port or free_ports(1)[0]
    command = [redis_server(), "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    with started("redis-server", command, log, workdir) as process:
        wait_until(lambda: _answers(port), process, "redis-server", log, seconds=20)
        yield port


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(7) == b"+PONG\r\n"
    except OSError:
        return False
