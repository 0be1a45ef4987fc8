"""Nothing that was started outlives its stopping."""

import os
import signal
import subprocess
import sys
import time

import pytest

from synapse_lakehouse.embedded import processes

# A child that moves to a process group of its own, as Airflow's tasks do, and one that does not listen to SIGTERM.
FAMILY = """
import os, signal, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import os, time; os.setpgid(0, 0); time.sleep(600)"])
subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"])
time.sleep(600)
"""


def test_a_whole_session_is_stopped_the_deaf_by_force() -> None:
    leader = processes.start([sys.executable, "-c", FAMILY], os.environ, subprocess.PIPE)
    assert leader.stdout
    assert leader.stdout.readline() == b"deaf\n"
    deadline = time.monotonic() + 10
    while len(processes.members({leader.pid})) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)

    processes.stop([leader], grace_seconds=1)

    assert processes.members({leader.pid}) == []
    assert leader.returncode == -signal.SIGTERM
    leader.stdout.close()


def test_being_asked_to_end_is_an_interrupt() -> None:
    def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    with pytest.raises(KeyboardInterrupt), processes.interruptible():
        work()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
