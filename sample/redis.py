"""Run Debian's redis-server on a free loopback port, without persistence."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sample.processes import ServiceError, free_ports, run, start_process, wait_until


def redis_server() -> str:
    """Return the path of redis-server. Install it from Debian if it is missing and this user is root.

    :raises ServiceError: if it is missing and cannot be installed.
    """
    if path := shutil.which("redis-server"):
        return path
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ServiceError(
            "redis-server is not installed. Synapse's workers communicate over it. "
            "Install it with: sudo apt-get install redis-server"
        )
    run(["apt-get", "update"], "apt-get update")
    # With RUNLEVEL=1, the package does not start a service.
    run(
        ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1",
         "apt-get", "install", "--yes", "--no-install-recommends", "redis-server"],
        "Installing redis-server",
    )  # fmt: skip
    if path := shutil.which("redis-server"):
        return path
    raise ServiceError("redis-server was installed but is not on PATH")


@contextmanager
def redis(workdir: Path, log: Path, port: int | None = None) -> Iterator[int]:
    """Run Redis on 127.0.0.1, by default on a free port; yield its port."""
    port = port or free_ports(1)[0]
    command = [redis_server(), "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    with start_process("redis-server", command, log, workdir) as process:
        wait_until(lambda: _responds(port), process, "redis-server", log, seconds=20)
        yield port


def _responds(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(7) == b"+PONG\r\n"
    except OSError:
        return False
