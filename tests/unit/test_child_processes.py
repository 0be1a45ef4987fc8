"""Stopping a program stops all of its child processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from synapse_lakehouse.local import child_processes

# Two child processes: one moves to its own process group, as Airflow's tasks do; the other ignores SIGTERM.
CHILDREN = """
import os, signal, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import os, time; os.setpgid(0, 0); time.sleep(600)"])
subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"])
time.sleep(600)
"""


def test_all_processes_of_a_session_are_stopped() -> None:
    leader = child_processes.start_process([sys.executable, "-c", CHILDREN], os.environ, subprocess.PIPE)
    assert leader.stdout
    assert leader.stdout.readline() == b"deaf\n"
    deadline = time.monotonic() + 10
    while len(child_processes.list_session_members({leader.pid})) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)

    child_processes.stop_sessions([leader], grace_seconds=1)

    assert child_processes.list_session_members({leader.pid}) == []
    assert leader.returncode == -signal.SIGTERM
    leader.stdout.close()


def test_an_interrupted_poll_does_not_prevent_the_stop() -> None:
    """A KeyboardInterrupt in Popen.poll can leave its lock acquired. In one of 30 stops, ``make ui`` did not end."""
    leader = child_processes.start_process(["sleep", "600"], os.environ, subprocess.DEVNULL)
    with leader._waitpid_lock:  # type: ignore[attr-defined]
        child_processes.stop_sessions([leader])
    assert leader.returncode == -signal.SIGTERM


def test_a_termination_signal_is_an_interrupt() -> None:
    def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    with pytest.raises(KeyboardInterrupt), child_processes.interrupt_on_signals():
        work()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


# A parent process, which the test kills, and its child, which ignores SIGTERM.
ORPHAN = """
import os, signal, subprocess, sys, time
from synapse_lakehouse.local import child_processes
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
child = child_processes.start_process([sys.executable, "-c", CHILD], os.environ, subprocess.PIPE, signal.SIGKILL)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def test_nothing_outlives_a_parent_that_was_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE)
    assert parent.stdout
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while child_processes.list_session_members({child}) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert child_processes.list_session_members({child}) == []


# Two processes that ignore SIGTERM. They are stopped one after the other, with a grace period of 600 s.
LONG_GRACE_PERIOD = """
import os, subprocess, sys, time
from synapse_lakehouse.local import child_processes
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
with child_processes.interrupt_on_signals():
    pair = [child_processes.start_process([sys.executable, "-c", CHILD], os.environ, subprocess.PIPE) for _ in range(2)]
    for child in pair:
        child.stdout.readline()
    try:
        print(*(child.pid for child in pair), flush=True)
        time.sleep(600)
    finally:
        child_processes.stop_sessions(pair[:1], pair[1:], grace_seconds=600)
"""


def test_repeated_signals_stop_every_session() -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", LONG_GRACE_PERIOD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert driver.stdout
    sessions = set(map(int, driver.stdout.readline().split()))
    driver.send_signal(signal.SIGSTOP)
    for end_signal in child_processes.END_SIGNALS:
        driver.send_signal(end_signal)
    driver.send_signal(signal.SIGCONT)
    while driver.poll() is None:
        driver.send_signal(signal.SIGINT)
        time.sleep(0.001)
    try:
        assert child_processes.list_session_members(sessions) == []
    finally:
        for session in child_processes.list_session_members(sessions):
            os.kill(session, signal.SIGKILL)
        driver.stdout.close()
