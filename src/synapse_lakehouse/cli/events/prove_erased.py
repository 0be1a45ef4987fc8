"""``lakehouse prove-erased``: search the lake's files for content of a user that Synapse has erased."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import duckdb
import typer
from duckdb import DuckDBPyConnection
from rich.progress import track

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.maintenance import erasure_scan
from synapse_lakehouse.iceberg.maintenance.erasure_scan import (
    CONTENT_COLUMNS,
    ContentState,
    ErasureScan,
    FoundContent,
    UserMentions,
)
from synapse_lakehouse.iceberg.maintenance.warehouse_files import (
    UnreadableFiles,
    list_parquet_files,
    split_readable_files,
)
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.printable_text import to_printable

EXIT_CONTENT_IN_LAKE: Final = 1
"""Exit code: the lake contains content that Synapse's database no longer has, or nothing is proven."""
EXIT_CONTENT_IN_SOURCE: Final = 3
"""Exit code: all remaining content is also in Synapse's database."""

_COMPARED: Final = {"erased_users", "event_json", "event_relations", "events"}
"""Tables of the release that show which content Synapse's database still has."""

_COLUMNS: Final = ("table", "content", "rows", "in_other_files", "reason")
_IDS: Final = "ids and membership"
_UNREADABLE: Final = "file that cannot be read"
_MAX_FILES: Final = 3
"""Maximum number of unreadable files that are listed."""


def _user_id(text: str) -> str:
    if not re.fullmatch(r"@[^:]+:\S+", text):
        raise typer.BadParameter(f"{to_printable(text)} is not a Matrix user ID (@localpart:server).")
    return text


def prove_erased(
    user: Annotated[str, typer.Argument(callback=_user_id, help="The erased user, as @localpart:server.")],
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """Show the remaining data of an erased user by table, with the reason.

    The exit code is not 0 if a file still contains message content of the user, or content of a purged event. Exit code
    1: the lake contains some of this content that Synapse's database no longer has, or nothing is proven, for example
    because a file cannot be read or the user is not erased. Exit code 3: all remaining content is also in Synapse's
    database. Exit code 0: no such content remains.
    """
    with lake_session.open_lake() as (settings, connection):
        releases = duckdb_reader.list_releases(connection, settings)
        latest = duckdb_reader.get_release(connection, settings)
        files, unreadable = split_readable_files(connection, settings, list_parquet_files(connection, settings))
        scan = ErasureScan(connection, settings, latest, user, files)
        if not scan.is_erased():
            raise LakeReadError(
                f"{to_printable(user)} is not erased in release {latest.number}, of "
                f"{output.format_time(latest.published_at.replace(microsecond=0))}, so there is nothing to "
                "prove. If the erasure is more recent, run `make run` first. Synapse revokes an erasure "
                "when the account is reactivated."
            )
        try:
            scan.prepare()
            mentions, contents = search_files(scan)
        except duckdb.Error as error:
            raise LakeReadError(
                f"Not proven: some files of the warehouse could not be read ({str(error).splitlines()[0]}). If a run "
                "or maintenance is replacing files, try again later; otherwise a file is damaged."
            ) from error
        rows = [
            *describe_content(connection, settings, releases, mentions, contents),
            *map(describe_unreadable, unreadable),
        ]
    output.write_rows(_COLUMNS, rows, format)
    text, code = summarize_proof(user, latest, contents, unreadable)
    output.echo(text, err=format is not output.OutputFormat.TABLE)
    raise typer.Exit(code)


def search_files(scan: ErasureScan) -> tuple[list[UserMentions], list[FoundContent]]:
    """Search the files of all tables, with a progress bar."""
    console = output.PrintableConsole(stderr=True)
    tables = track(
        sorted(scan.files), "Reading every file", console=console, transient=True, disable=not console.is_terminal
    )
    mentions: list[UserMentions] = []
    contents: list[FoundContent] = []
    for table in tables:
        mentions.append(scan.mentions(table))
        contents += scan.content(table)
    return mentions, contents


def describe_content(
    connection: DuckDBPyConnection,
    settings: Settings,
    releases: Sequence[Release],
    mentions: Sequence[UserMentions],
    contents: Sequence[FoundContent],
) -> Iterator[tuple[str, str, int, int, str]]:
    """Return output rows: remaining message content by table, then rows that contain the user's ID."""
    for content in contents:
        if content.state in {ContentState.IN_SOURCE, ContentState.LEFT_BEHIND}:
            reason = f"in Synapse's database, at release {releases[0].number}"
            yield content.table, content.state, content.events, 0, reason
        else:
            reason = "; ".join(erasure_scan.describe_references(connection, settings, releases, content))
            yield content.table, content.state, 0, content.events, reason
    for mention in mentions:
        if mention.rows:
            yield mention.table, _IDS, mention.rows, mention.rows_elsewhere, "retained as in Synapse"
        elif mention.rows_elsewhere:
            yield mention.table, _IDS, 0, mention.rows_elsewhere, "in files that the present release does not read"


def describe_unreadable(unreadable: UnreadableFiles) -> tuple[str, str, int, int, str]:
    """Return an output row about the unreadable files of a table."""
    count = len(unreadable.files)
    names = ", ".join(unreadable.files[:_MAX_FILES]) + (" and others" if count > _MAX_FILES else "")
    return unreadable.table, _UNREADABLE, 0, 0, f"not proven: {count} incomplete or damaged: {names}"


def summarize_proof(
    user: str, release: Release, contents: Sequence[FoundContent], unreadable: Sequence[UnreadableFiles] = ()
) -> tuple[str, int]:
    """Return the summary text and the exit code for ``contents`` and unreadable files."""
    user = to_printable(user)
    in_source = list(_describe_source_content(user, _count_events(contents)))
    in_lake = list(_describe_lake_content(user, release, _count_events(contents), unreadable))
    if in_source or in_lake:
        return "\n".join([*in_source, *in_lake]), EXIT_CONTENT_IN_LAKE if in_lake else EXIT_CONTENT_IN_SOURCE
    return (
        f"Proven: no Parquet file in the warehouse contains message content of {user}, or content of an event that is "
        f"not in release {release.number}. The columns {', '.join(CONTENT_COLUMNS)} of every file were searched, "
        "also of files that no table refers to. Names, topics and aliases of purged rooms were not searched in files "
        "of earlier releases: maintenance deletes these files with the releases. Iceberg's own metadata was not "
        "searched: it has no values of columns with content. IDs and memberships remain, as in Synapse."
    ), 0


def _count_events(contents: Sequence[FoundContent]) -> dict[ContentState, int]:
    """Return by state the largest number of events in one table."""
    return {
        state: max((content.events for content in contents if content.state is state), default=0)
        for state in ContentState
    }


def _describe_source_content(user: str, events: Mapping[ContentState, int]) -> Iterator[str]:
    if in_source := events[ContentState.IN_SOURCE]:
        yield (
            f"{in_source} messages of {user} are in the lake because Synapse's database has them. Erasing a user only "
            "hides messages from users that were not in the room. Redact the messages or purge the rooms in Synapse; "
            "then the next runs and maintenance remove them from the lake."
        )
    if left_behind := events[ContentState.LEFT_BEHIND]:
        yield (
            f"Synapse's database has reactions to {left_behind} events, by any user, without the JSON of these events, "
            "for example after an incomplete purge. Delete these rows of event_relations in Synapse's database; then "
            "the next runs and maintenance remove them from the lake."
        )


def _describe_lake_content(
    user: str, release: Release, events: Mapping[ContentState, int], unreadable: Sequence[UnreadableFiles]
) -> Iterator[str]:
    if events[ContentState.REPLACED] or events[ContentState.PURGED]:
        yield (
            f"The lake's files contain {events[ContentState.REPLACED]} messages of {user} and "
            f"{events[ContentState.PURGED]} purged events, by any user, that Synapse's database no longer has. The "
            "reason in each row names the time at which the DAG lake_maintenance deletes them."
        )
    if count := sum(len(files.files) for files in unreadable):
        yield (
            f"Not proven: {count} {'file' if count == 1 else 'files'} in the warehouse cannot be read, so their "
            "content is unknown. Such files come from an active or killed run. Try again when no run is active. "
            "Maintenance deletes files without a reference after six hours."
        )
    if outdated := sorted({*release.partial} & _COMPARED):
        yield (
            f"Not proven: release {release.number} is partial and has old versions of {', '.join(outdated)}, so "
            "later deletions in Synapse are unknown. Correct the faults that `make run` reports about these tables, "
            "and try again after the next run."
        )
