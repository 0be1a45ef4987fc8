"""Child processes that never outlive their purpose, as whole sessions are stopped."""

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
# SIGINT too: a shell starts background jobs with it ignored.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_process(
    command: Sequence[str],
    environment: Mapping[str, str],
    output: int | IO[bytes],
    if_orphaned: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start ``command`` as the leader of a new session, so that Ctrl-C in the terminal reaches only this process.

    :param if_orphaned: the signal that it gets when this process dies without stopping it.
    """
    dying_with_its_parent = ["setpriv", "--pdeathsig", if_orphaned.name]
    return subprocess.Popen(
        [*dying_with_its_parent, *command], env=environment, stdin=subprocess.DEVNULL, stdout=output,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def stop_sessions(*groups: Sequence[subprocess.Popen[bytes]], grace_seconds: float = GRACE_SECONDS) -> None:
    """Stop every process of the leaders' sessions, group after group: politely, and after ``grace_seconds`` by force.

    A signal to end during the wait means by force at once; it skips no process.
    """
    asked: list[int] = []
    with _handling(lambda number, frame: asked.append(number)):
        for leaders in groups:
            sessions = {leader.pid for leader in leaders}
            _signal(sessions, signal.SIGTERM)
            deadline = time.monotonic() + grace_seconds
            while list_session_members(sessions):
                if asked or time.monotonic() > deadline:
                    _signal(sessions, signal.SIGKILL)
                time.sleep(0.1)
            for leader in leaders:
                leader.wait()


def list_session_members(sessions: set[int]) -> list[int]:
    """Ids of the live processes in ``sessions``, also of those that moved to another process group."""
    return [
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _session(entry) in sessions
    ]


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Inside, a request to end (SIGTERM, a closed terminal) is what Ctrl-C is: one KeyboardInterrupt, however often it
    comes until that was dealt with."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not isinstance(sys.exception(), KeyboardInterrupt):
            raise KeyboardInterrupt

    with _handling(interrupt):
        yield


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _session(process: Path) -> int | None:
    try:
        # Bytes: a program's name in it may be cut within a character.
        state, _, _, session = (process / "stat").read_bytes().rpartition(b")")[2].split()[:4]
    except OSError:
        return None
    return None if state == b"Z" else int(session)


def _signal(sessions: set[int], number: signal.Signals) -> None:
    for pid in list_session_members(sessions):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
