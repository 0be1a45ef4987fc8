"""Start child processes, each in its own process group and with a log file, and stop them with their parent."""

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
    """A service could not be installed, started or reached. The message contains the remedy or the output."""


def free_ports(count: int) -> list[int]:
    """Return ``count`` different TCP ports on 127.0.0.1 that are currently free."""
    with ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]


def run(command: Sequence[str | Path], purpose: str) -> None:
    """Run ``command`` until it ends.

    :raises ServiceError: if it exits with an error. The message contains ``purpose`` and the end of the output.
    """
    result = subprocess.run(command, capture_output=True, check=False)
    if result.returncode:
        output = (result.stderr + result.stdout).decode(errors="replace").strip()[-2000:]
        raise ServiceError(f"{purpose} failed (exit code {result.returncode}): {output}")


@contextmanager
def start_process(
    name: str, command: Sequence[str | Path], log: Path, cwd: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start ``command`` in its own process group with its output in ``log``. Stop it when the context ends.

    If setpriv (util-linux) is installed, the kernel stops the command when this process is killed.
    """
    setpriv = shutil.which("setpriv")
    prefix = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*prefix, *command],
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
    """Send SIGTERM to the process group of ``process``, and SIGKILL after STOP_SECONDS.

    :raises ServiceError: if it survives SIGKILL.
    """
    for signal_number, timeout in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout)
            return
    raise ServiceError(f"{name} (process {process.pid}) does not end; stop it by hand with kill -9 {process.pid}")


def wait_until(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], name: str, log: Path, seconds: float = 240
) -> None:
    """Poll ``ready`` until it returns true.

    :raises ServiceError: if ``process`` ends or ``seconds`` pass before. The message contains the end of the log.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        exit_code = process.poll()
        if exit_code is not None or time.monotonic() > deadline:
            fault = f"was not ready after {seconds:.0f} s" if exit_code is None else f"ended with exit code {exit_code}"
            raise ServiceError(f"{name} {fault}; the end of {log}:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)
