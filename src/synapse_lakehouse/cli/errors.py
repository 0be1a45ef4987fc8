"""Errors whose message is written for people end a command with that message and exit code 1, without a stack trace."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from synapse_lakehouse.cli import output
from synapse_lakehouse.printable_text import to_printable_lines

_PACKAGE = __name__.partition(".")[0]


class Explaining(TyperGroup):
    """A group of commands that explains the project's own errors."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Refuse what is no text: no identifier of Matrix, no SQL and no setting may be that."""
        for one in args:
            if any("\ud800" <= character <= "\udfff" for character in one):
                ctx.fail(f"{os.fsencode(one)!r} is not UTF-8.")
        with _printable_refusals():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Run the command that was asked for."""
        try:
            with _printable_refusals():
                return super().invoke(ctx)
        except Exception as error:
            message = explanation(error)
            if message is None:
                raise
            output.echo(f"Error: {message}", err=True)
            raise typer.Exit(1) from error


@contextmanager
def _printable_refusals() -> Iterator[None]:
    """Refusals of arguments, which quote them."""
    try:
        yield
    except Exception as refusal:
        # Typer's own copy of Click has no public name for their base.
        if hasattr(refusal, "format_message") and hasattr(refusal, "message"):
            refusal.message = to_printable_lines(refusal.message)
        raise


def explanation(error: Exception) -> str | None:
    """What to tell people about ``error``; None if it is not one that the project raised on purpose."""
    if isinstance(error, ValidationError):
        wrong = [f"  {'.'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors()]
        return "\n".join(["These settings are wrong; correct them in the environment or .env:", *wrong])
    return str(error) if type(error).__module__.partition(".")[0] == _PACKAGE else None
