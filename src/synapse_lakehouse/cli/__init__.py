"""The command ``lakehouse``. Large packages (PyIceberg, Airflow) are imported in the commands that need them."""

import os
from typing import Annotated, Final

import typer
from typer.core import TyperGroup

from synapse_lakehouse.cli import grants, replicate
from synapse_lakehouse.cli import homeservers as overview
from synapse_lakehouse.cli.compression import compress
from synapse_lakehouse.cli.doctor import doctor
from synapse_lakehouse.cli.errors import SUBCOMMAND_ARGUMENTS, ErrorReportingGroup
from synapse_lakehouse.cli.events import prove_erased, state_at, visibility
from synapse_lakehouse.cli.lake import branches, connect, query, releases
from synapse_lakehouse.cli.report import diff, metrics, report, sizes
from synapse_lakehouse.cli.rooms import cleanup
from synapse_lakehouse.cli.runs import airflow, release_summary, run, ui
from synapse_lakehouse.cli.state import restore_plan
from synapse_lakehouse.cli.streams import positions
from synapse_lakehouse.config import homeservers, libpq_variables
from synapse_lakehouse.config.settings import Settings

_OF_ALL_HOMESERVERS: Final = ("homeservers", "ui", "airflow")
"""Commands that are about all homeservers of an installation."""

app = typer.Typer(
    cls=ErrorReportingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Query and operate the lakehouse of a Synapse homeserver.",
)


@app.callback()
def prepare_process(
    context: typer.Context,
    homeserver: Annotated[
        str | None,
        typer.Option(
            envvar="LAKEHOUSE_HOMESERVER",
            help="Homeserver to use: NAME of the file NAME.env in LAKEHOUSE_HOMESERVERS.",
            show_envvar=False,
        ),
    ] = None,
) -> None:
    """Keep written files private, because the lake contains messages. Ignore libpq's environment variables.

    The ``obj`` of the context becomes the file of the selected homeserver.
    """
    os.umask(0o077)
    libpq_variables.hide_from_libpq()
    if shows_help(context):
        return
    source = context.get_parameter_source("homeserver")
    if context.invoked_subcommand in _OF_ALL_HOMESERVERS:
        if source and source.name == "COMMANDLINE":
            context.fail(f"`lakehouse {context.invoked_subcommand}` is about all homeservers. Leave out --homeserver.")
        # The variable names the homeserver of the other commands.
        os.environ.pop("LAKEHOUSE_HOMESERVER", None)
    elif name := homeserver or Settings().lakehouse_homeserver:
        context.obj = homeservers.select_homeserver(name)
    else:
        homeservers.require_one_homeserver()


def shows_help(context: typer.Context) -> bool:
    """Return whether the command shows its help, which needs no settings."""
    assert isinstance(context.command, TyperGroup)
    command = context.command.get_command(context, context.invoked_subcommand or "")
    arguments = context.meta[SUBCOMMAND_ARGUMENTS]
    return any(name in arguments for name in context.help_option_names) or (
        not arguments and command is not None and command.no_args_is_help
    )


app.command()(run.run)
app.command()(ui.ui)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})(
    airflow.airflow
)
app.command()(overview.homeservers)
app.command()(query.query)
app.command()(positions.positions)
app.command()(releases.releases)
app.command()(diff.diff)
app.command()(report.report)
app.command()(sizes.sizes)
app.command()(metrics.metrics)
app.command()(release_summary.summary)
app.command()(visibility.who_can_see)
app.command()(visibility.visible)
app.command()(state_at.state_at)
app.command()(doctor.doctor)
app.command()(prove_erased.prove_erased)
app.command()(connect.connect)
app.command()(grants.grants)


app.add_typer(branches.app, name="branches")
app.add_typer(compress.app, name="compress")
app.add_typer(replicate.app, name="replicate")
app.add_typer(cleanup.app, name="rooms")
app.add_typer(restore_plan.app, name="state")
