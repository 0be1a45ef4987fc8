"""What a piece of work costs: wall time, CPU time of a tree of processes, and their memory."""

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
    """A line of /proc: CPU seconds include those of children that ended and were waited for."""

    pid: int
    parent: int
    name: str
    cpu: float


@dataclass(frozen=True)
class Cost:
    """Seconds of wall time, CPU seconds of the workers and of the database server, and the workers' peak bytes of
    proportional set size, without JVMs unless they were asked for."""

    wall: float
    cpu: float
    source_cpu: float
    memory: int


class Meter:
    """Measures, while its context lasts, the processes below ``root`` (itself included) and below ``server``, if any.

    :param jvm: whether the memory of JVMs counts.
    """

    def __init__(self, root: int, server: int | None = None, *, jvm: bool = False) -> None:
        self._root, self._server, self._jvm = root, server, jvm
        self._over = threading.Event()
        self._memory = 0
        self.cost: Cost | None = None

    def __enter__(self) -> Self:
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        self._before = self._cpu()
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        wall = time.monotonic() - self._started
        cpu, source_cpu = (after - before for before, after in zip(self._before, self._cpu(), strict=True))
        self._over.set()
        self._sampler.join()
        self.cost = Cost(wall, cpu, source_cpu, self._memory)

    def _cpu(self) -> tuple[float, float]:
        processes = list(running())
        return cpu_seconds(processes, self._root), cpu_seconds(processes, self._server) if self._server else 0.0

    def _sample(self) -> None:
        while True:
            tree = below(list(running()), self._root)
            self._memory = max(self._memory, sum(_bytes(one.pid, self._jvm) for one in tree))
            if self._over.wait(_SAMPLE_SECONDS):
                return


def server_pid(data: Path) -> int:
    """Process id of the PostgreSQL server that runs on the folder ``data``."""
    return int((data / "postmaster.pid").read_text().split()[0])


def cpu_seconds(processes: list[Process], root: int) -> float:
    """CPU seconds that ``root`` and all below it have used so far."""
    return sum(process.cpu for process in below(processes, root))


def below(processes: list[Process], root: int) -> list[Process]:
    """The process ``root`` and its descendants."""
    children = defaultdict(list)
    for process in processes:
        children[process.parent].append(process)
    found = [process for process in processes if process.pid == root]
    for process in found:
        found += children[process.pid]
    return found


def running() -> Iterator[Process]:
    """All processes of this machine."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                line = (folder / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield parse_stat(line)


def parse_stat(line: str) -> Process:
    """A line of /proc/PID/stat, in which a program's name may hold blanks and brackets (man 5 proc_pid_stat)."""
    pid, _, rest = line.partition(" (")
    name, _, rest = rest.rpartition(") ")
    fields = rest.split()
    return Process(int(pid), int(fields[1]), name, sum(map(int, fields[11:15])) / _TICKS)


def _bytes(pid: int, jvm: bool) -> int:
    process = Path(f"/proc/{pid}")
    try:
        # Not by its name: what a JVM forks bears a thread's name, and shares the JVM's memory until it runs a program.
        if not jvm and (process / "exe").readlink().name == "java":
            return 0
        lines = (process / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
