"""Find content of a user and of purged events in all files of the lake, including files that no table refers to.

The scan reads every Parquet file below the warehouse. The bytes of a deleted row remain until its file is rewritten.
The old file remains until no Iceberg snapshot needs it and maintenance deletes it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import is_unbranched
from synapse_lakehouse.iceberg.maintenance.warehouse_files import parquet_scan_sql, to_path
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import quote_literal, quote_table_name


class ContentState(StrEnum):
    """The state of content in a file: in the release, there without its event, replaced, or of a purged event."""

    IN_SOURCE = "message content"
    LEFT_BEHIND = "content without its event"
    REPLACED = "former message content"
    PURGED = "content of purged events"


@dataclass(frozen=True)
class FoundContent:
    """Content that the scan found in a table's files: the number of events, and the files."""

    table: str
    state: ContentState
    events: int
    files: tuple[str, ...]


@dataclass(frozen=True)
class UserMentions:
    """Numbers of rows that mention a user: in the release, and elsewhere (deleted or earlier rows in files)."""

    table: str
    rows: int
    rows_elsewhere: int


@dataclass(frozen=True)
class ErasureScan:
    """Finds content of ``user`` in ``files`` (Parquet files by table) and compares it with ``release``."""

    connection: DuckDBPyConnection
    settings: Settings
    release: Release
    user: str
    files: Mapping[str, Collection[str]]

    def is_erased(self) -> bool:
        """Return whether Synapse recorded the erasure of the user."""
        duckdb_reader.create_views(self.connection, self.settings, self.release, ["bronze.erased_users"])
        sql = f"select count(*) from bronze.erased_users where user_id = {quote_literal(self.user)}"  # noqa: S608
        return int(self._all(sql)[0][0]) > 0

    def prepare(self) -> None:
        """Collect the events of the release, and the events of the user. Call this once before :meth:`content`."""
        duckdb_reader.create_views(self.connection, self.settings, self.release, ["bronze.event_json"])
        self.connection.execute(
            "create or replace temp table released_events as select event_id from bronze.event_json"
        )
        self.connection.execute("create or replace temp table sent (event_id text)")
        if events := self.files.get("bronze.events"):
            self._add_sent(events, "sender = {user}")
        for table, files in self.files.items():
            # An event's row of bronze.events may be in no file: the source lost the row, or maintenance deleted its
            # file first.
            if {"event_id", "json"} <= set(self._columns(table)):
                self._add_sent(files, _IS_BY)

    def _add_sent(self, files: Collection[str], condition: str) -> None:
        by_user = condition.format(user=quote_literal(self.user))
        self.connection.execute(
            f"insert into sent select distinct event_id from {parquet_scan_sql(files)} where {by_user}"  # noqa: S608
        )

    def mentions(self, table: str) -> UserMentions:
        """Return rows of ``table`` that mention the user."""
        user, in_json = quote_literal(self.user), quote_literal(f'"{self.user}"')
        columns = map(_quoted, self._columns(table))
        names = " or ".join(f"{column} = {user} or contains({column}, {in_json})" for column in columns)
        in_files = self._count(parquet_scan_sql(self.files[table]), names)
        released = self._count(quote_table_name(table), names) if self._create_view(table) else 0
        return UserMentions(table, released, in_files - released)

    def content(self, table: str) -> Iterator[FoundContent]:
        """Yield content of the erased user's messages, and content of events that are not in the release."""
        columns = self._columns(table)
        for column in CONTENT_COLUMNS:
            if column in columns and "event_id" in columns:
                yield from self._content(table, column)

    def _content(self, table: str, column: str) -> Iterator[FoundContent]:
        released = f"select event_id, md5({column}) as version from {quote_table_name(table)}"  # noqa: S608
        if not self._create_view(table):
            released = "select null::text as event_id, null::text as version where false"
        rows = self._all(
            f"with released as ({released}), found as ("  # noqa: S608
            f" select event_id, md5({column}) as version, filename, event_id in (from sent) as is_by_user,"
            f" event_id not in (from released_events) as is_purged, {HAS_CONTENT[column]} as has_content,"
            f" {_IS_MESSAGE[column]} as is_message"
            f" from {parquet_scan_sql(self.files[table])} where {column} is not null and (is_by_user or is_purged)"
            "), states as ("
            " select found.*, case"
            f" when is_purged and released.version is not null then {quote_literal(ContentState.LEFT_BEHIND)}"
            f" when is_purged then {quote_literal(ContentState.PURGED)}"
            f" when released.version is null then {quote_literal(ContentState.REPLACED)}"
            f" else {quote_literal(ContentState.IN_SOURCE)} end as state"
            " from found left join released on released.event_id = found.event_id and released.version = found.version"
            " where has_content and (is_purged or is_message))"
            " select state, count(distinct event_id), list(distinct filename) from states group by state order by state"
        )
        for state, events, files in rows:
            yield FoundContent(table, ContentState(state), events, tuple(sorted(files)))

    def _create_view(self, table: str) -> bool:
        """Create a view of ``table`` at the release, or now if it is unbranched; return False if it is absent."""
        if table not in self.release.tables and not is_unbranched(table):
            return False
        duckdb_reader.create_views(self.connection, self.settings, self.release, [table])
        return True

    def _columns(self, table: str) -> list[str]:
        """Names of the text columns of a table's data files."""
        described = self._all(f"describe from {parquet_scan_sql(self.files[table])}")
        return [name for name, kind, *_ in described if kind == "VARCHAR" and name not in {"filename", "file_path"}]

    def _count(self, relation: str, condition: str) -> int:
        return int(self._all(f"select count(*) from {relation} where {condition or 'false'}")[0][0])  # noqa: S608

    def _all(self, sql: str) -> list[tuple]:  # type: ignore[type-arg]
        return self.connection.execute(sql).fetchall()


# Invalid JSON has no sender field, so any mention of the user counts.
_IS_BY: Final = (
    "case when json_valid(json) then json_extract_string(json, '$.sender') = {user} else contains(json, {user}) end"
)

_ENVELOPE: Final = (
    *("auth_events", "content", "depth", "event_id", "hashes", "membership", "origin", "origin_server_ts"),
    *("prev_events", "prev_state", "redacts", "room_id", "sender", "signatures", "state_key", "type", "unsigned"),
)
"""Keys of an event that a redaction retains in some room version, and ``unsigned``."""

_ENVELOPE_OF_UNSIGNED: Final = ("age", "age_ts", "prev_sender", "replaces_state", "transaction_id")
_IS_ID: Final = r"'\$\S{1,254}'"


def _other_keys(path: str, allowed: Collection[str]) -> str:
    names = ", ".join(map(quote_literal, allowed))
    return f"len(list_filter(json_keys(json, '{path}'), lambda k: k not in ({names}))) > 0"


def _is_text(path: str) -> str:
    return f"not regexp_full_match(json_extract_string(json, '{path}'), {_IS_ID})"


# A redacted message has no content. A redacted redaction keeps the ID of its target since room version 11.
HAS_CONTENT: Final = {
    "json": "case when json_valid(json) then "
    + " or ".join(
        f"coalesce({condition}, false)"
        for condition in (
            # An event, ``content`` or ``unsigned`` that is no JSON object may contain any text.
            *(f"json_type(json, '{path}') not in ('OBJECT', 'NULL')" for path in ("$", "$.content", "$.unsigned")),
            f"if(json_extract_string(json, '$.type') = 'm.room.redaction', {_other_keys('$.content', ['redacts'])}"
            f" or {_is_text('$.content.redacts')}, len(json_keys(json, '$.content')) > 0)",
            _is_text("$.redacts"),
            _other_keys("$", _ENVELOPE),
            _other_keys("$.unsigned", _ENVELOPE_OF_UNSIGNED),
        )
    )
    + " else true end",
    "aggregation_key": "true",
    "room_property": "true",
}
CONTENT_COLUMNS: Final = tuple(HAS_CONTENT)
"""Columns with content of events in all tables: an event's JSON, the text of a reaction, the name of a room."""
_IS_MESSAGE: Final = {
    "json": "case when json_valid(json) then json_extract(json, '$.state_key') is null else true end",
    "aggregation_key": "true",
    "room_property": "false",
}


def describe_references(
    connection: DuckDBPyConnection, settings: Settings, published: Collection[Release], content: FoundContent
) -> list[str]:
    """Return the reasons why the files of ``content`` are still in the warehouse, each with the remedy.

    :param published: all releases, the latest first.
    """
    entry = list_catalog_entries(settings).get(content.table)
    if entry is None:
        return ["files of a table that the catalog no longer has: delete its folder"]
    metadata = duckdb_reader.read_metadata(connection, entry.location)
    files, latest = {to_path(file) for file in content.files}, next(iter(published))
    by_snapshot = {
        snapshot["snapshot-id"]: files & _files_of(connection, entry.location, snapshot["snapshot-id"])
        for snapshot in metadata["snapshots"]
    }
    reasons, explained = [], set[str]()
    if released := by_snapshot.get(latest.tables.get(content.table, 0), set()):
        explained |= released
        reasons.append(
            "rows marked as deleted in files of the latest release: the next maintenance rewrites these files"
        )
    earlier = [
        release
        for release in published
        if release is not latest and by_snapshot.get(release.tables.get(content.table, 0))
    ]
    if earlier:
        explained = explained.union(*(by_snapshot[release.tables[content.table]] for release in earlier))
        until = earlier[0].published_at + timedelta(days=settings.lakehouse_erasure_days)
        numbers = f"{earlier[-1].number} to {earlier[0].number}" if len(earlier) > 1 else f"{earlier[0].number}"
        reasons.append(f"earlier release {numbers}: maintenance deletes it after {until:%Y-%m-%d %H:%M}Z")
    for name, ref in metadata.get("refs", {}).items():
        others = by_snapshot.get(ref["snapshot-id"], set()) - explained
        if name != "main" and ref["type"] == "branch" and others:
            explained |= others
            reasons.append(f"the branch {name} of a run: drop it with `lakehouse branches drop`")
    if set().union(*by_snapshot.values()) - explained:
        reasons.append("Iceberg snapshots without a release: the next maintenance deletes them")
    if files - set().union(*by_snapshot.values()):
        reasons.append("files that no table refers to: maintenance deletes them when they are six hours old")
    return reasons


def _files_of(connection: DuckDBPyConnection, location: str, snapshot_id: int) -> set[str]:
    rows = connection.execute(
        f"select file_path from iceberg_metadata({quote_literal(location)}, snapshot_from_id => {int(snapshot_id)})"  # noqa: S608
        " where status <> 'DELETED'"
    ).fetchall()
    return {to_path(file) for (file,) in rows}


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
