"""Describe the machine, the commit and the time of a measurement."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.report import Table
from synapse_lakehouse.config.settings import PROJECT_FOLDER

_PACKAGES = ("pyspark", "pyarrow", "duckdb")


def describe_machine(packages: tuple[str, ...] = _PACKAGES, **extra_rows: str) -> Table:
    """Return date, commit, processor, memory, load average and package versions, then ``extra_rows``."""
    memory = int(Path("/proc/meminfo").read_text().split()[1])
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    commit = ["git", "describe", "--always", "--dirty"]
    rows = {
        "Date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "Commit": subprocess.run(
            commit, cwd=PROJECT_FOLDER, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip(),
        "Processor": f"{os.cpu_count()} cores, {model[0].partition(': ')[2] if model else platform.machine()}",
        "Memory": f"{memory / 1024**2:.0f} GiB",
        "Load average before (5 minutes)": f"{os.getloadavg()[1]:.1f}",
        "Python packages": ", ".join(f"{name} {version(name)}" for name in packages),
    }
    return Table("Machine", ("", ""), list((rows | extra_rows).items()))
