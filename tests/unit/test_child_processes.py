"""Stopping a program stops all of its child processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from synapse_lakehouse.local import child_processes

# A child that moves to a process group of its own, as Airflow's tasks do, and one that does not listen to SIGTERM.
FAMILY = """
import os, signal, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import os, time; os.setpgid(0, 0); time.sleep(600)"])
subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"])
time.sleep(600)
"""


def test_a_whole_session_is_stopped_the_deaf_by_force() -> None:
    leader = child_processes.start_process([sys.executable, "-c", FAMILY], os.environ, subprocess.PIPE)
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
    """KeyboardInterrupt can end Popen.poll after it took its lock: one of thirty stops of ``make ui`` never ended."""
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


# One that does not listen to SIGTERM, whose parent is killed.
ORPHAN = """
import os, signal, subprocess, sys, time
from synapse_lakehouse.local import child_processes
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
child = child_processes.start_process([sys.executable, "-c", DEAF], os.environ, subprocess.PIPE, signal.SIGKILL)
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


# Two that do not listen to SIGTERM, stopped one after the other with all the patience of the world.
PATIENT = """
import os, subprocess, sys, time
from synapse_lakehouse.local import child_processes
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
with child_processes.interrupt_on_signals():
    both = [child_processes.start_process([sys.executable, "-c", DEAF], os.environ, subprocess.PIPE) for _ in range(2)]
    for one in both:
        one.stdout.readline()
    try:
        print(*(one.pid for one in both), flush=True)
        time.sleep(600)
    finally:
        child_processes.stop_sessions(both[:1], both[1:], grace_seconds=600)
"""


def test_asking_again_and_again_hurries_and_skips_nothing() -> None:
    driver = subprocess.Popen([sys.executable, "-c", PATIENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert driver.stdout
    sessions = set(map(int, driver.stdout.readline().split()))
    driver.send_signal(signal.SIGSTOP)
    for number in child_processes.END_SIGNALS:
        driver.send_signal(number)
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
