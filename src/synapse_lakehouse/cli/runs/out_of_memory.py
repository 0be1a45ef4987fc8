"""Explain a run that failed because memory ran out: a process was killed, or got no more memory."""

from collections.abc import Collection
from typing import Final

from synapse_lakehouse.cli.runs.task_log import KILLED_TEXT
from synapse_lakehouse.config.limits import parse_heap_size
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.memory import Memory

BESIDE_HEAP: Final = 3 << 29
"""Bytes in addition to the heap of Spark's driver. With the sample, 1.3 GiB were measured while dbt built all models:
Airflow 0.4 GiB, Spark's JVM 0.5, Python 0.3."""

_HEAP_FULL: Final = ("OutOfMemoryError: Java heap space", "OutOfMemoryError: GC overhead limit exceeded")
_NO_MEMORY: Final = (
    "OutOfMemoryError", "MemoryError", "Out of Memory Error", "insufficient memory for the Java Runtime",
    "Cannot allocate memory", "malloc of size",
)  # fmt: skip
"""Messages of Java, Python, DuckDB, the kernel and Arrow."""


def required_bytes(settings: Settings) -> int:
    """Return bytes that a run of the shipped sample needs; a larger database needs more."""
    return BESIDE_HEAP + parse_heap_size(settings.lakehouse_driver_memory)


def explain_failure(failures: dict[str, str], kills: int, memory: Memory, settings: Settings) -> str | None:
    """Return the reason and the remedy if a run failed because memory ran out; otherwise None.

    :param failures: reasons by task.
    :param kills: number of processes that the kernel killed since the run began, because memory ran out.
    """
    if kills:
        cause = "The kernel killed a process of this run (signal 9) because memory ran out."
    elif _contains_any(failures, [KILLED_TEXT]):
        cause = "A process of this run was killed (signal 9), most likely because memory ran out."
    elif _contains_any(failures, _HEAP_FULL):
        return (
            f"The heap of Spark's driver is full. Set LAKEHOUSE_DRIVER_MEMORY={settings.lakehouse_driver_memory} to a "
            "larger value; then run again. A run needs 1.5 GiB in addition, and the limit is "
            f"{format_gibibytes(memory.limit)} ({memory.source})."
        )
    elif _contains_any(failures, _NO_MEMORY):
        cause = "A process of this run could not get more memory."
    else:
        return None
    return (
        f"{cause} The limit is {format_gibibytes(memory.limit)} ({memory.source}). A run of the shipped sample needs "
        f"{format_gibibytes(required_bytes(settings))} with "
        f"LAKEHOUSE_DRIVER_MEMORY={settings.lakehouse_driver_memory}, a larger database needs "
        "more. Raise the limit, stop other programs, or set a smaller LAKEHOUSE_DRIVER_MEMORY; then run again."
    )


def _contains_any(failures: dict[str, str], messages: Collection[str]) -> bool:
    return any(message in reason for message in messages for reason in failures.values())


def format_gibibytes(size: int) -> str:
    """Return a size in GiB."""
    return f"{size / 2**30:.1f} GiB"
