"""Measure wall time, and CPU time and memory of a process tree."""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_SAMPLE_SECONDS = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A process of /proc; its CPU seconds include those of terminated children that it waited for."""

    pid: int
    parent: int
    name: str
    cpu: float


@dataclass(frozen=True)
class Cost:
    """Seconds of wall time, CPU seconds of the workers and of PostgreSQL, and the workers' peak memory.

    Memory is the proportional set size in bytes; the meter decides whether it includes JVMs.
    """

    wall: float
    cpu: float
    source_cpu: float
    memory: int


class Meter:
    """Context manager that measures the process tree of ``root``, and the CPU time of the tree of ``server``.

    :param jvm: whether the memory includes JVMs.
    """

    def __init__(self, root: int, server: int | None = None, *, jvm: bool = False) -> None:
        self._root, self._server, self._jvm = root, server, jvm
        self._stop = threading.Event()
        self._memory = 0
        self._cost: Cost | None = None

    def __enter__(self) -> Self:
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        self._before = self._cpu()
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        wall = time.monotonic() - self._started
        cpu, source_cpu = (after - before for before, after in zip(self._before, self._cpu(), strict=True))
        self._stop.set()
        self._sampler.join()
        self._cost = Cost(wall, cpu, source_cpu, self._memory)

    @property
    def cost(self) -> Cost:
        """The cost of the context that ended.

        :raises RuntimeError: before the context ends.
        """
        if self._cost is None:
            raise RuntimeError("The measurement has not ended.")
        return self._cost

    def _cpu(self) -> tuple[float, float]:
        processes = list(running_processes())
        return cpu_seconds(processes, self._root), cpu_seconds(processes, self._server) if self._server else 0.0

    def _sample(self) -> None:
        while True:
            tree = process_tree(list(running_processes()), self._root)
            self._memory = max(self._memory, sum(_memory_bytes(process.pid, self._jvm) for process in tree))
            if self._stop.wait(_SAMPLE_SECONDS):
                return


def server_pid(data: Path) -> int:
    """Return the process ID of the PostgreSQL server with the data folder ``data``."""
    return int((data / "postmaster.pid").read_text().split()[0])


def cpu_seconds(processes: list[Process], root: int) -> float:
    """CPU seconds of the process tree of ``root``."""
    return sum(process.cpu for process in process_tree(processes, root))


def process_tree(processes: list[Process], root: int) -> list[Process]:
    """Return the process ``root`` and its descendants."""
    children = defaultdict(list)
    for process in processes:
        children[process.parent].append(process)
    tree = [process for process in processes if process.pid == root]
    for process in tree:
        tree += children[process.pid]
    return tree


def running_processes() -> Iterator[Process]:
    """All processes of this machine."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                line = (folder / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield parse_stat(line)


def parse_stat(line: str) -> Process:
    """Parse /proc/PID/stat. The program name may contain blanks and brackets (man 5 proc_pid_stat)."""
    pid, _, rest = line.partition(" (")
    name, _, rest = rest.rpartition(") ")
    fields = rest.split()
    return Process(int(pid), int(fields[1]), name, sum(map(int, fields[11:15])) / _TICKS)


def _memory_bytes(pid: int, jvm: bool) -> int:
    process = Path(f"/proc/{pid}")
    try:
        # A child that a JVM forks has a thread's name and shares the JVM's memory until exec: compare the executable.
        if not jvm and (process / "exe").readlink().name == "java":
            return 0
        lines = (process / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
