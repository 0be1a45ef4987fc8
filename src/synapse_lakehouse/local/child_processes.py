"""Start each child process in its own session, and stop all processes of a session."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

GRACE_SECONDS = 15.0
# SIGINT is included, because a shell starts background jobs in such a way that they ignore SIGINT.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_process(
    command: Sequence[str],
    environment: Mapping[str, str],
    output: int | IO[bytes],
    if_orphaned: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start ``command`` as the leader of a new session, so that Ctrl-C in the terminal reaches only this process.

    :param if_orphaned: the signal that the kernel sends to the child when this process dies.
    """
    dying_with_its_parent = ["setpriv", "--pdeathsig", if_orphaned.name]
    return subprocess.Popen(
        [*dying_with_its_parent, *command], env=environment, stdin=subprocess.DEVNULL, stdout=output,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def stop_sessions(*groups: Sequence[subprocess.Popen[bytes]], grace_seconds: float = GRACE_SECONDS) -> None:
    """Stop every process of the leaders' sessions, one group after the other. After ``grace_seconds``, kill the rest.

    A termination signal during the wait kills the remaining processes at once.
    """
    signals: list[int] = []
    with _handle_signals(lambda number, frame: signals.append(number)):
        for leaders in groups:
            sessions = {leader.pid for leader in leaders}
            _send_signal(sessions, signal.SIGTERM)
            deadline = time.monotonic() + grace_seconds
            while list_session_members(sessions):
                if signals or time.monotonic() > deadline:
                    _send_signal(sessions, signal.SIGKILL)
                time.sleep(0.1)
            for leader in leaders:
                _reap(leader)


def list_session_members(sessions: set[int]) -> list[int]:
    """Return the IDs of the live processes in ``sessions``, in any process group."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _read_session(entry) in sessions
    ]


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt also for SIGTERM and for a closed terminal.

    Further signals are ignored until the exception is handled.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not isinstance(sys.exception(), KeyboardInterrupt):
            raise KeyboardInterrupt

    with _handle_signals(interrupt):
        yield


@contextmanager
def _handle_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _read_session(process: Path) -> int | None:
    try:
        # The file is read as bytes, because a program's name may be cut within a character.
        state, _, _, session = (process / "stat").read_bytes().rpartition(b")")[2].split()[:4]
    except OSError:
        return None
    return None if state == b"Z" else int(session)


def _reap(ended: subprocess.Popen[bytes]) -> None:
    """Set the return code.

    Popen.wait is not used: it never returns if KeyboardInterrupt ended Popen.poll while Popen.poll held the lock.
    """
    with suppress(ChildProcessError):
        ended.returncode = os.waitstatus_to_exitcode(os.waitpid(ended.pid, 0)[1])


def _send_signal(sessions: set[int], number: signal.Signals) -> None:
    for pid in list_session_members(sessions):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
