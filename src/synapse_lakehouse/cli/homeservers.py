"""``lakehouse homeservers``: the state of each homeserver of an installation that has several."""

from contextlib import suppress

from synapse_lakehouse.cli import output
from synapse_lakehouse.config.env_file import EnvFileError
from synapse_lakehouse.config.homeservers import HomeserverError, find_file, list_homeservers

_COLUMNS = ("homeserver", "server_name", "state", "release", "published_at", "headline", "next_step")


def homeservers(format: output.FormatOption = output.OutputFormat.TABLE) -> None:
    """List the homeservers of LAKEHOUSE_HOMESERVERS, each with its newest release and its problems."""
    from synapse_lakehouse.cli.doctor import env_file_readers
    from synapse_lakehouse.report.overview import describe_misnamed_settings_files, read_overview

    names = list_homeservers()
    if not names:
        raise HomeserverError(
            "This installation has one homeserver. For several, set LAKEHOUSE_HOMESERVERS to a folder with a file "
            "NAME.env per homeserver."
        )
    rows = (
        (
            row.name,
            row.server_name,
            row.status.level.value,
            row.status.release.number if row.status.release else None,
            row.status.release.published_at.replace(microsecond=0) if row.status.release else None,
            row.status.headline,
            row.status.next_step,
        )
        for row in [*read_overview(names), *describe_misnamed_settings_files()]
    )
    output.write_rows(_COLUMNS, rows, format)
    for name in names:
        # The overview explains a file that cannot be read.
        with suppress(EnvFileError):
            for finding in env_file_readers.examine(find_file(name)):
                output.echo(f"Warning: {finding.message} {finding.advice}", err=True)
