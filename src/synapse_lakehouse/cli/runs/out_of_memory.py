"""Explain why a process of a run was killed: most likely, memory ran out."""

from typing import Final

from synapse_lakehouse.cli.runs.task_log import KILLED_TEXT
from synapse_lakehouse.config.limits import parse_heap_size
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.memory import Memory

BESIDE_HEAP: Final = 3 << 29
"""Bytes in addition to the heap of Spark's driver. With the sample, 1.3 GiB were measured while dbt built all models:
Airflow 0.4 GiB, Spark's JVM 0.5, Python 0.3."""


def required_bytes(settings: Settings) -> int:
    """Return bytes that a run of the shipped sample needs; a larger database needs more."""
    return BESIDE_HEAP + parse_heap_size(settings.lakehouse_driver_memory)


def explain_kill(failures: dict[str, str], kills: int, memory: Memory, settings: Settings) -> str | None:
    """Return the reason and the remedy if a process of a failed run was killed; otherwise None.

    :param failures: reasons by task.
    :param kills: processes that the kernel killed for memory since the run began.
    """
    if kills:
        cause = "The kernel killed a process of this run (signal 9) because memory ran out."
    elif any(KILLED_TEXT in reason for reason in failures.values()):
        cause = "A process of this run was killed (signal 9), most likely because memory ran out."
    else:
        return None
    return (
        f"{cause} The limit is {format_gibibytes(memory.limit)} ({memory.source}). A run of the shipped sample needs "
        f"{format_gibibytes(required_bytes(settings))} with "
        f"LAKEHOUSE_DRIVER_MEMORY={settings.lakehouse_driver_memory}, a larger database needs "
        "more. Raise the limit, stop other programs, or set a smaller LAKEHOUSE_DRIVER_MEMORY; then run again."
    )


def format_gibibytes(size: int) -> str:
    """Return a size in GiB."""
    return f"{size / 2**30:.1f} GiB"
