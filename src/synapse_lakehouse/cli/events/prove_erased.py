"""``lakehouse prove-erased``: search the lake's files for content of a user that Synapse has erased."""

import re
from collections.abc import Iterator, Sequence
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
"""Exit code: the lake contains content that Synapse's database no longer has, or a file cannot be read."""
EXIT_CONTENT_IN_SOURCE: Final = 3
"""Exit code: all remaining content is also in Synapse's database."""

_COMPARED: Final = {"erased_users", "event_json", "event_relations", "events"}
"""Tables of the release that show what Synapse still has."""

_COLUMNS: Final = ("table", "what", "rows", "in_other_files", "why")
_IDS: Final = "ids and membership"
_UNREADABLE: Final = "file that cannot be read"
_NAMED: Final = 3
"""At most this many unreadable files are listed."""


def _user_id(text: str) -> str:
    if not re.fullmatch(r"@[^:]+:\S+", text):
        raise typer.BadParameter(f"{to_printable(text)} is not a Matrix user ID (@localpart:server).")
    return text


def prove_erased(
    user: Annotated[str, typer.Argument(callback=_user_id, help="The erased user, as @localpart:server.")],
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """Show the remaining data of an erased user by table, with the reason; fails if a file has message content.

    Exit code 1: the lake contains content of the user, or of any purged event, that Synapse's database no longer has;
    or a file of the warehouse cannot be read.
    Exit code 3: all remaining content is also in Synapse's database. Exit code 0: no message content remains.
    """
    with lake_session.open_lake() as (settings, connection):
        published = duckdb_reader.list_releases(connection, settings)
        latest = duckdb_reader.get_release(connection, settings)
        files, unread = split_readable_files(connection, list_parquet_files(connection, settings))
        found = ErasureScan(connection, settings, latest, user, files)
        if not found.is_erased():
            raise LakeReadError(
                f"{to_printable(user)} is not erased in release {latest.number}, of "
                f"{output.format_time(latest.published_at.replace(microsecond=0))}, so there is nothing to "
                "prove. If the erasure is more recent, run `make run` first. Synapse revokes an erasure "
                "when the account is reactivated."
            )
        try:
            found.prepare()
            mentions, contents = search_files(found)
        except duckdb.Error as error:
            raise LakeReadError(
                f"Not proven: some files of the warehouse could not be read ({str(error).splitlines()[0]}). If a run "
                "or maintenance is replacing files, try again later; otherwise a file is damaged."
            ) from error
        rows = [
            *describe_content(connection, settings, published, mentions, contents),
            *map(describe_unreadable, unread),
        ]
    output.write_rows(_COLUMNS, rows, format)
    text, code = summarize_proof(user, latest, contents, unread)
    output.echo(text, err=format is not output.OutputFormat.TABLE)
    raise typer.Exit(code)


def search_files(found: ErasureScan) -> tuple[list[UserMentions], list[FoundContent]]:
    """Search the files of all tables, with a progress bar."""
    console = output.PrintableConsole(stderr=True)
    tables = track(
        sorted(found.files), "Reading every file", console=console, transient=True, disable=not console.is_terminal
    )
    mentions: list[UserMentions] = []
    contents: list[FoundContent] = []
    for table in tables:
        mentions.append(found.mentions(table))
        contents += found.content(table)
    return mentions, contents


def describe_content(
    connection: DuckDBPyConnection,
    settings: Settings,
    published: Sequence[Release],
    mentions: Sequence[UserMentions],
    contents: Sequence[FoundContent],
) -> Iterator[tuple[str, str, int, int, str]]:
    """Output rows: remaining message content by table, then rows that contain the user's ID."""
    for one in contents:
        if one.state in {ContentState.IN_SOURCE, ContentState.LEFT_BEHIND}:
            yield one.table, one.state, one.events, 0, f"in Synapse's database, at release {published[0].number}"
        else:
            yield (
                one.table,
                one.state,
                0,
                one.events,
                "; ".join(erasure_scan.describe_references(connection, settings, published, one)),
            )
    for named in mentions:
        if named.rows:
            yield named.table, _IDS, named.rows, named.rows_elsewhere, "kept as in Synapse"
        elif named.rows_elsewhere:
            yield named.table, _IDS, 0, named.rows_elsewhere, "in files that the present release does not read"


def describe_unreadable(unread: UnreadableFiles) -> tuple[str, str, int, int, str]:
    """An output row: the unreadable files of a table."""
    names = ", ".join(map(str, unread.files[:_NAMED])) + (" and others" if len(unread.files) > _NAMED else "")
    return unread.table, _UNREADABLE, 0, 0, f"not proven: {len(unread.files)} incomplete or damaged: {names}"


def summarize_proof(
    user: str, release: Release, contents: Sequence[FoundContent], unread: Sequence[UnreadableFiles] = ()
) -> tuple[str, int]:
    """Summary text and exit code, from ``contents`` and unreadable files."""
    user = to_printable(user)
    most = {state: max((one.events for one in contents if one.state is state), default=0) for state in ContentState}
    lines, code = [], 0
    if in_source := most[ContentState.IN_SOURCE]:
        code = EXIT_CONTENT_IN_SOURCE
        lines.append(
            f"{in_source} messages of {user} are in the lake because Synapse's database has them: erasing a user hides "
            "messages from those who were not in the room, and deletes none. Redact them or purge the rooms in "
            "Synapse; the runs after that and maintenance take them out of the lake."
        )
    if left := most[ContentState.LEFT_BEHIND]:
        code = EXIT_CONTENT_IN_SOURCE
        lines.append(
            f"Of {left} events, of anyone, Synapse's database has reactions and no JSON any more, as after a purge "
            "that was not completed. Delete these rows of event_relations there; the runs after that and maintenance "
            "take them out of the lake."
        )
    if most[ContentState.REPLACED] or most[ContentState.PURGED]:
        code = EXIT_CONTENT_IN_LAKE
        lines.append(
            f"The lake's files hold the content of {most[ContentState.REPLACED]} messages of {user} and of "
            f"{most[ContentState.PURGED]} purged events, of anyone, that Synapse's database no longer has. "
            "The reason in each "
            "row says when that ends; the DAG lake_maintenance ends it."
        )
    if broken := sum(len(one.files) for one in unread):
        code = EXIT_CONTENT_IN_LAKE
        lines.append(
            f"Not proven: {broken} {'file' if broken == 1 else 'files'} in the warehouse cannot be read, so their "
            "content is unknown. A running or killed run leaves such files: try again when no "
            "run is active; maintenance deletes what no table refers to once it is six hours old."
        )
    if outdated := sorted({*release.partial} & _COMPARED):
        code = EXIT_CONTENT_IN_LAKE
        lines.append(
            f"Not proven: release {release.number} is partial and has old versions of {', '.join(outdated)}, so "
            "later deletions in Synapse are unknown. Correct what `make run` reports about them, and try again after "
            "the next run."
        )
    if not lines:
        lines.append(
            f"Proven: no Parquet file in the warehouse holds message content of {user}, nor content of any event that "
            f"is not in release {release.number}. Searched were the columns {' and '.join(CONTENT_COLUMNS)} of every "
            "file, referred to or not. Not searched were names, topics and aliases of purged rooms in files of earlier "
            "releases, which maintenance deletes with these, and Iceberg's own metadata, which is written without "
            "values of columns that hold content. Ids and memberships stay, as they do in Synapse."
        )
    return "\n".join(lines), code
