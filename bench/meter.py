"""Measure wall time, and the CPU time and memory of a process tree."""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class Cost:
    """Seconds of wall time, CPU seconds of the workers and of PostgreSQL, and the workers' peak memory.

    Memory is the proportional set size in bytes. The parameter ``jvm`` of the meter decides whether it includes JVMs.
    """

    wall: float
    cpu: float
    source_cpu: float
    memory: int


class Meter:
    """Context manager that measures the process tree of ``root``, and the CPU time of the tree of ``server``.

    :param jvm: whether the memory includes JVMs.
    :param sample_seconds: pause between two measurements of the memory. Each measurement uses CPU time.
    """

    def __init__(
        self, root: int, server: int | None = None, *, jvm: bool = False, sample_seconds: float = _SAMPLE_SECONDS
    ) -> None:
        self._root, self._server, self._jvm, self._pause = root, server, jvm, sample_seconds
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
        """The cost of the context.

        :raises RuntimeError: before the context ends.
        """
        if self._cost is None:
            raise RuntimeError("The measurement has not ended.")
        return self._cost

    def _cpu(self) -> tuple[float, float]:
        return cpu_seconds(self._root), cpu_seconds(self._server) if self._server else 0.0

    def _sample(self) -> None:
        while True:
            memory = sum(_memory_bytes(process, self._jvm) for process in _process_tree(self._root))
            self._memory = max(self._memory, memory)
            if self._stop.wait(self._pause):
                return


def server_pid(data: Path) -> int:
    """Return the process ID of the PostgreSQL server with the data folder ``data``."""
    return int((data / "postmaster.pid").read_text().split()[0])


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of the process tree of ``root``, with those of terminated children."""
    seconds = 0.0
    for process in _process_tree(root):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def _process_tree(root: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    return []


def _memory_bytes(process: psutil.Process, jvm: bool) -> int:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        # Until exec, a child of a JVM has a thread's name and the JVM's memory, so the executable is compared.
        if jvm or Path(process.exe()).name != "java":
            return int(process.memory_full_info().pss)
    return 0
