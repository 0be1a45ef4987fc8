"""Show the steps of a run on the terminal."""

import textwrap
import time
from collections.abc import Iterable
from typing import Final

from rich.text import Text

from synapse_lakehouse.cli.output import PrintableConsole
from synapse_lakehouse.cli.runs.task_log import RunStep
from synapse_lakehouse.printable_text import to_printable, to_printable_message

PROGRESS_SECONDS: Final = 5.0
"""Interval between progress lines without a terminal."""

_MARKS: Final = {
    "success": Text("✓", "green"),
    "skipped": Text("-", "yellow"),
    "failed": Text("✗", "red"),
    "up_for_retry": Text("↻", "yellow"),
}

console = PrintableConsole(soft_wrap=True)


def print_stage(stage: str) -> None:
    """Print the next stage."""
    console.print(Text(f"· {to_printable(stage)}", "dim"))


def show_steps(steps: Iterable[RunStep]) -> dict[str, str]:
    """Show each step; on a terminal, progress replaces the last line.

    :returns: reasons of failures by task.
    """
    failures: dict[str, str] = {}
    printed_at = time.monotonic()
    with console.status("starting Airflow") as status:
        for step in steps:
            line = to_printable(step.text.partition("\n")[0])
            status.update(Text.assemble(f"{step.task} ", (line, "dim")))
            is_overdue = not console.is_terminal and time.monotonic() - printed_at > PROGRESS_SECONDS
            if step.kind in _MARKS:
                failures.pop(step.task, None)
                if step.kind == "failed":
                    failures[step.task] = step.text
                _print_end(step)
            elif step.kind == "started" and not console.is_terminal:
                console.print(f"→ {to_printable(step.task)}")
            elif step.kind == "logged" or (step.kind == "progress" and is_overdue):
                printed_at = time.monotonic()
                console.print(textwrap.indent(step.text, "    "))
    return failures


def print_failures(failures: dict[str, str], where: str) -> None:
    """Print the failures, and where the full log is."""
    for task, reason in failures.items():
        console.print(Text.assemble("\n", (f"{task} failed", "bold red"), f"\n{to_printable_message(reason)}"))
    console.print(Text.assemble("\n", ("No release was published.", "red"), f" Full log: {to_printable(where)}"))


def _print_end(step: RunStep) -> None:
    note = " failed, will be retried" if step.kind == "up_for_retry" else ""
    console.print(
        Text.assemble(_MARKS[step.kind], f" {step.task:<32} ", (f"{step.seconds:6.1f} s", "dim"), (note, "yellow"))
    )
