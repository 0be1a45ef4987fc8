"""``lakehouse doctor``: is everything there that a run needs?"""

from typing import Annotated, Final

import typer
from rich.text import Text

from synapse_lakehouse.cli import output
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.printable_text import to_printable_lines

_STYLES: Final = {"OK": "green", "WARN": "yellow", "FAIL": "bold red"}


def doctor(
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Also: what is wrong in Synapse's database as a whole, and every key read in full."
        ),
    ] = False,
    format: Annotated[output.OutputFormat, typer.Option(help="How findings are written.")] = output.OutputFormat.TABLE,
) -> None:
    """Examine settings, source, role, schema, sequences, clock, disk, Java, jars and lake; exit 1 if one fails."""
    from synapse_lakehouse.cli.doctor.examinations import examine
    from synapse_lakehouse.cli.doctor.finding import FindingLevel

    found = examine(Settings(), deep=deep)
    if format is output.OutputFormat.TABLE:
        table = output.create_table()
        table.add_column("", no_wrap=True)
        table.add_column("Subject", no_wrap=True)
        table.add_column("Finding", overflow="fold")
        for one in found:
            finding = output.format_cell(one.message)
            if one.advice:
                finding.append(f"\n{to_printable_lines(one.advice)}", style="italic")
            table.add_row(Text(one.level, style=_STYLES[one.level]), one.subject, finding)
        output.create_console().print(table)
    else:
        rows = ((one.level.value, one.subject, one.message, one.advice) for one in found)
        output.write_rows(["level", "subject", "message", "advice"], rows, format)
    if any(one.level is FindingLevel.FAIL for one in found):
        raise typer.Exit(1)
