"""Read the memory limits of this machine's processes, and the kernel's number of out-of-memory kills."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Memory:
    """The effective memory limit and the free memory, in bytes. ``source``: the machine, or the file with the limit."""

    limit: int
    free: int
    source: str


def read_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> Memory:
    """Return the smallest of the limits of the machine and of this process's control groups (version 1 or 2)."""
    machine = {line.split(":")[0]: int(line.split()[1]) << 10 for line in _read_lines(proc / "meminfo")}
    least = Memory(machine["MemTotal"], machine["MemAvailable"], "the machine's memory")
    for folder in _list_cgroup_folders(proc, cgroups):
        for limit_file, usage_file in (("memory.max", "memory.current"), _VERSION_1):
            limit = _read_number(folder / limit_file)
            if limit is not None and limit < least.limit:
                cache = _read_counter(folder / "memory.stat", "inactive_file") or 0
                used = (_read_number(folder / usage_file) or 0) - cache
                least = Memory(limit, max(0, min(limit - used, machine["MemAvailable"])), str(folder / limit_file))
    return least


def count_memory_kills(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return the kernel's number of out-of-memory kills, in this process's control groups or on the machine."""
    counts = [
        _read_counter(folder / name, "oom_kill")
        for folder in _list_cgroup_folders(proc, cgroups)
        for name in ("memory.events", "memory.oom_control")
    ]
    limits = [count for count in counts if count is not None]
    return sum(limits) if limits else _read_counter(proc / "vmstat", "oom_kill") or 0


_VERSION_1: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def _list_cgroup_folders(proc: Path, cgroups: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups, from its own to the root."""
    for line in _read_lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = cgroups / "memory" if controllers else cgroups
        # In a container, the path may be the path on the host, but only the root of the container's groups is visible.
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_dir():
                yield folder
            if folder == root:
                break


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _read_number(file: Path) -> int | None:
    lines = _read_lines(file)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _read_counter(file: Path, name: str) -> int | None:
    return next((int(line.split()[1]) for line in _read_lines(file) if line.split()[:1] == [name]), None)
