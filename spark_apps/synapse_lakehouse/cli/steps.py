"""Steps of a run on the terminal, as they happen."""

import textwrap
import time
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.markup import escape

from synapse_lakehouse.cli.progress import Step

SAY_SECONDS: Final = 5.0
"""Where there is no terminal, what a task says is shown this often."""

_MARKS: Final = {
    "success": "[green]✓[/]",
    "skipped": "[yellow]-[/]",
    "failed": "[red]✗[/]",
    "up_for_retry": "[yellow]↻[/]",
}

console = Console(highlight=False, soft_wrap=True)


def tell(stage: str) -> None:
    """Say in a few words what comes next."""
    console.print(f"[dim]· {escape(stage)}[/]")


def show(steps: Iterable[Step]) -> dict[str, str]:
    """Show each step; what a task says changes one line of the terminal.

    :returns: why tasks failed, by task.
    """
    failures: dict[str, str] = {}
    said = time.monotonic()
    with console.status("starting Airflow") as status:
        for step in steps:
            status.update(f"{step.task} [dim]{escape(step.text.partition(chr(10))[0])}[/]")
            overdue = not console.is_terminal and time.monotonic() - said > SAY_SECONDS
            if step.kind in _MARKS:
                failures.pop(step.task, None)
                if step.kind == "failed":
                    failures[step.task] = step.text
                _ended(step)
            elif step.kind == "started" and not console.is_terminal:
                console.print(f"→ {step.task}")
            elif step.kind == "noted" or (step.kind == "said" and overdue):
                said = time.monotonic()
                console.print(textwrap.indent(escape(step.text), "    "))
    return failures


def explain(failures: dict[str, str], where: str) -> None:
    """Say in red why a run failed, and where to read on."""
    for task, why in failures.items():
        console.print(f"\n[bold red]{task} failed[/]\n{escape(why)}")
    console.print(f"\n[red]No release was published.[/] The whole story: {escape(where)}")


def _ended(step: Step) -> None:
    again = " [yellow]failed, will be tried again[/]" if step.kind == "up_for_retry" else ""
    console.print(f"{_MARKS[step.kind]} {step.task:<32} [dim]{step.seconds:6.1f} s[/]{again}")
