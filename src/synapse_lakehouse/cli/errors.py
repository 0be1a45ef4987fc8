"""Print expected errors without a stack trace and exit with code 1."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from synapse_lakehouse.cli import output
from synapse_lakehouse.config.invalid_settings import list_invalid_settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.printable_text import to_printable_message

SUBCOMMAND_ARGUMENTS: Final = "synapse_lakehouse.subcommand_arguments"
"""Entry of a context's ``meta``: the arguments after the subcommand's name."""


class ErrorReportingGroup(TyperGroup):
    """A group of commands that prints the message of a :class:`LakehouseError`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Refuse arguments that are not UTF-8."""
        for arg in args:
            if any("\ud800" <= character <= "\udfff" for character in arg):
                ctx.fail(f"{os.fsencode(arg)!r} is not UTF-8.")
        with _printable_usage_errors():
            rest = super().parse_args(ctx, args)
        ctx.meta[SUBCOMMAND_ARGUMENTS] = ctx.args
        return rest

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Run the command."""
        try:
            with _printable_usage_errors():
                return super().invoke(ctx)
        except Exception as error:
            message = error_message(error)
            if message is None:
                raise
            output.echo(f"Error: {to_printable_message(message)}", err=True)
            raise typer.Exit(1) from error


@contextmanager
def _printable_usage_errors() -> Iterator[None]:
    """Make usage errors printable, because they quote arguments."""
    try:
        yield
    except Exception as error:
        # Typer's copy of Click has no public name for the base class of usage errors.
        if hasattr(error, "format_message") and hasattr(error, "message"):
            error.message = to_printable_message(error.message)
        raise


def error_message(error: Exception) -> str | None:
    """Return the message of an expected error (:class:`LakehouseError` or a wrong setting); None for other errors."""
    if isinstance(error, ValidationError):
        invalid = [f"  {setting}" for setting in list_invalid_settings(error)]
        return "\n".join(["These settings are invalid; correct them in the environment or .env:", *invalid])
    return str(error) if isinstance(error, LakehouseError) else None
