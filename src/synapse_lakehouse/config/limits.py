"""Limits of settings' values."""

import re
from typing import Final

_HEAP: Final = re.compile(r"[1-9][0-9]{0,6}[mgMG]")

MIN_HEAP_BYTES: Final = 512 << 20
"""Spark refuses a driver with a heap below 450 MiB."""

MAX_HEAP_BYTES: Final = 1 << 40

MAX_SECONDS: Final = 2_000_000
"""23 days. The limit exists because PostgreSQL stores timeouts as milliseconds in 31 bits."""

MAX_DAYS: Final = 36_500
"""A century. With this limit, every computed date is between year 1 and year 9999."""


def is_heap_size(memory: str) -> bool:
    """Return whether ``memory`` is a heap size within the limits, such as 2g."""
    return bool(_HEAP.fullmatch(memory)) and MIN_HEAP_BYTES <= parse_heap_size(memory) <= MAX_HEAP_BYTES


def parse_heap_size(memory: str) -> int:
    """Return a heap size in bytes. ``memory`` is a number of megabytes or gigabytes as in Java's ``-Xmx``: 2g."""
    return int(memory[:-1]) << {"m": 20, "g": 30}[memory[-1].lower()]
