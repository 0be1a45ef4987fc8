import os
import subprocess
import sys

from bench.meter import Meter


def test_cost_includes_terminated_children() -> None:
    with Meter(os.getpid(), server=os.getppid()) as meter:
        subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
    assert meter.cost.cpu >= 0.02
    assert meter.cost.wall > 0.02
    assert meter.cost.memory > 1_000_000
