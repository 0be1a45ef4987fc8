"""Child processes that never outlive their owner: own process groups, logs in files, stopped by process id."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

STOP_SECONDS = 30


class ServiceError(RuntimeError):
    """A service could not be installed, started or reached; the message names the remedy."""


def free_ports(count: int) -> list[int]:
    """Return ``count`` different TCP ports on 127.0.0.1 that are free at this moment."""
    with ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]


def run(command: Sequence[str | Path], purpose: str) -> None:
    """Run ``command`` to its end.

    :raises ServiceError: when it exits with an error, with ``purpose`` and the end of its output.
    """
    result = subprocess.run(command, capture_output=True, check=False)
    if result.returncode:
        printed = (result.stderr + result.stdout).decode(errors="replace").strip()[-2000:]
        raise ServiceError(f"{purpose} failed (exit code {result.returncode}): {printed}")


@contextmanager
def started(
    name: str, command: Sequence[str | Path], log: Path, cwd: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """``command`` running in its own process group with its output in ``log``; stopped on leaving, whatever happened.

    The kernel stops it too should this process be killed before it can (where util-linux' setpriv is installed).
    """
    setpriv = shutil.which("setpriv")
    guard = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*guard, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=os.environ | (environment or {}),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        stop(process, name)


def stop(process: subprocess.Popen[bytes], name: str) -> None:
    """Ask the process group of ``process`` to end, and make it end after STOP_SECONDS.

    :raises ServiceError: when it survives even SIGKILL.
    """
    for request, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, request)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return
    raise ServiceError(f"{name} (process {process.pid}) does not end; stop it by hand with kill -9 {process.pid}")


def wait_until(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], name: str, log: Path, seconds: float = 240
) -> None:
    """Poll ``ready`` until it is true.

    :raises ServiceError: when ``process`` ended or ``seconds`` passed before, with the end of its log.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        ended = process.poll()
        if ended is not None or time.monotonic() > deadline:
            why = f"did not answer within {seconds:.0f} s" if ended is None else f"ended with exit code {ended}"
            raise ServiceError(f"{name} {why}; the end of {log}:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)
