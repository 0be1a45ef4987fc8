"""``lakehouse doctor``: check all preconditions of a run."""

from typing import Annotated, Final

import typer
from rich.text import Text

from synapse_lakehouse.cli import output
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.printable_text import to_printable_lines

_STYLES: Final = {"OK": "green", "WARN": "yellow", "FAIL": "bold red"}


def doctor(
    context: typer.Context,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Also check the integrity of Synapse's database, and read all unique keys to find duplicates.",
        ),
    ] = False,
    indexes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE",
            help="With --deep: compare the B-tree indexes of this table with the table's rows. The command then does "
            "not read the unique keys. Repeat the option for further tables.",
        ),
    ] = None,
    format: Annotated[output.OutputFormat, typer.Option(help="Output format.")] = output.OutputFormat.TABLE,
) -> None:
    """Check settings, source, role, schema, sequences, clock, disk, Java, jars and lake.

    Exit code 1: a check has the result FAIL.
    """
    from synapse_lakehouse.cli.doctor.finding import FindingLevel
    from synapse_lakehouse.cli.doctor.run_checks import examine

    if indexes and not deep:
        raise typer.BadParameter("--indexes reads whole tables. Add --deep.")
    homeserver_files = [context.obj] if context.obj else []
    findings = examine(Settings(), deep=deep, index_tables=indexes or (), env_files=homeserver_files)
    if format is output.OutputFormat.TABLE:
        table = output.create_table()
        table.add_column("", no_wrap=True)
        table.add_column("Subject", no_wrap=True)
        table.add_column("Finding", overflow="fold")
        for finding in findings:
            cell = output.format_cell(finding.message)
            if finding.advice:
                cell.append(f"\n{to_printable_lines(finding.advice)}", style="italic")
            table.add_row(Text(finding.level, style=_STYLES[finding.level]), finding.subject, cell)
        output.create_console().print(table)
    else:
        rows = ((finding.level.value, finding.subject, finding.message, finding.advice) for finding in findings)
        output.write_rows(["level", "subject", "message", "advice"], rows, format)
    if any(finding.level is FindingLevel.FAIL for finding in findings):
        raise typer.Exit(1)
