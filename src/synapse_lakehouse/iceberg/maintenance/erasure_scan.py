"""What the lake's files still hold of a user and of purged events, whether a table still refers to the files or not.

Every Parquet file below the warehouse is read: a deleted row keeps its bytes until its file is written anew, and a file
until no snapshot needs it and maintenance deletes it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import is_unbranched
from synapse_lakehouse.iceberg.maintenance.warehouse_files import parquet_scan_sql, to_path
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import quote_literal, quote_table_name

CONTENT_COLUMNS: Final = ("json", "aggregation_key")
"""Columns that hold what people said, in whichever table: an event's JSON, and what a reaction shows."""


class ContentState(StrEnum):
    """How a piece of content in a file stands to the release: still there, replaced there, or its event is purged, with
    or without it."""

    IN_SOURCE = "message content"
    LEFT_BEHIND = "content without its event"
    REPLACED = "former message content"
    PURGED = "content of purged events"


@dataclass(frozen=True)
class FoundContent:
    """Content in a table's files: of how many events, and in which files."""

    table: str
    state: ContentState
    events: int
    files: tuple[str, ...]


@dataclass(frozen=True)
class UserMentions:
    """Rows that name a user: in a table as the release has it, and further ones in its files."""

    table: str
    rows: int
    rows_elsewhere: int


@dataclass(frozen=True)
class ErasureScan:
    """Reads what is left of ``user`` in ``files`` (Parquet files by table), against ``release``."""

    connection: DuckDBPyConnection
    settings: Settings
    release: Release
    user: str
    files: Mapping[str, Collection[Path]]

    def is_erased(self) -> bool:
        """Whether Synapse had the user's erasure on record."""
        duckdb_reader.create_views(self.connection, self.settings, self.release, ["bronze.erased_users"])
        sql = f"select count(*) from bronze.erased_users where user_id = {quote_literal(self.user)}"  # noqa: S608
        return int(self._all(sql)[0][0]) > 0

    def prepare(self) -> None:
        """Collect which events the release has and which the user sent; needed once, before :meth:`content`."""
        duckdb_reader.create_views(self.connection, self.settings, self.release, ["bronze.event_json"])
        self.connection.execute("create or replace temp table known as select event_id from bronze.event_json")
        self.connection.execute("create or replace temp table sent (event_id text)")
        if events := self.files.get("bronze.events"):
            self._add_sent(events, "sender = {user}")
        for table, files in self.files.items():
            # Its row of bronze.events may be in no file: a source may have lost it, or maintenance given it up first.
            if {"event_id", "json"} <= set(self._columns(table)):
                self._add_sent(files, _IS_BY)

    def _add_sent(self, files: Collection[Path], is_theirs: str) -> None:
        by_user = is_theirs.format(user=quote_literal(self.user))
        self.connection.execute(
            f"insert into sent select distinct event_id from {parquet_scan_sql(files)} where {by_user}"  # noqa: S608
        )

    def mentions(self, table: str) -> UserMentions:
        """Rows of ``table`` that name the user."""
        user, in_json = quote_literal(self.user), quote_literal(f'"{self.user}"')
        columns = map(_quoted, self._columns(table))
        names = " or ".join(f"{column} = {user} or contains({column}, {in_json})" for column in columns)
        everywhere = self._count(parquet_scan_sql(self.files[table]), names)
        now = self._count(quote_table_name(table), names) if self._is_bound(table) else 0
        return UserMentions(table, now, everywhere - now)

    def content(self, table: str) -> Iterator[FoundContent]:
        """Message content of the user, and any content of events that the release does not have."""
        columns = self._columns(table)
        for column in CONTENT_COLUMNS:
            if column in columns and "event_id" in columns:
                yield from self._content(table, column)

    def _content(self, table: str, column: str) -> Iterator[FoundContent]:
        held = f"select event_id, md5({column}) as version from {quote_table_name(table)}"  # noqa: S608
        if not self._is_bound(table):
            held = "select null::text as event_id, null::text as version where false"
        rows = self._all(
            f"with held as ({held}), found as ("  # noqa: S608
            f" select event_id, md5({column}) as version, filename, event_id in (from sent) as theirs,"
            f" event_id not in (from known) as is_purged, {HAS_CONTENT[column]} as has_content,"
            f" {_IS_MESSAGE[column]} as is_message"
            f" from {parquet_scan_sql(self.files[table])} where {column} is not null and (theirs or is_purged)"
            "), judged as ("
            " select found.*, case"
            f" when is_purged and held.version is not null then {quote_literal(ContentState.LEFT_BEHIND)}"
            f" when is_purged then {quote_literal(ContentState.PURGED)}"
            f" when held.version is null then {quote_literal(ContentState.REPLACED)}"
            f" else {quote_literal(ContentState.IN_SOURCE)} end as state"
            " from found left join held on held.event_id = found.event_id and held.version = found.version"
            " where has_content and (is_purged or is_message))"
            " select state, count(distinct event_id), list(distinct filename) from judged group by state order by state"
        )
        for state, events, files in rows:
            yield FoundContent(table, ContentState(state), events, tuple(sorted(files)))

    def _is_bound(self, table: str) -> bool:
        """Make ``table`` readable as the release has it; unbranched tables as they are now."""
        if table not in self.release.tables and not is_unbranched(table):
            return False
        duckdb_reader.create_views(self.connection, self.settings, self.release, [table])
        return True

    def _columns(self, table: str) -> list[str]:
        """Names of the text columns of a table's files; those of files that mark rows as deleted are none of them."""
        described = self._all(f"describe from {parquet_scan_sql(self.files[table])}")
        return [name for name, kind, *_ in described if kind == "VARCHAR" and name not in {"filename", "file_path"}]

    def _count(self, relation: str, condition: str) -> int:
        return int(self._all(f"select count(*) from {relation} where {condition or 'false'}")[0][0])  # noqa: S608

    def _all(self, sql: str) -> list[tuple]:  # type: ignore[type-arg]
        return self.connection.execute(sql).fetchall()


# Text that is no JSON names its sender nowhere: there, any mention of the user counts.
_IS_BY: Final = (
    "case when json_valid(json) then json_extract_string(json, '$.sender') = {user} else contains(json, {user}) end"
)

_ENVELOPE: Final = (
    *("auth_events", "content", "depth", "event_id", "hashes", "membership", "origin", "origin_server_ts"),
    *("prev_events", "prev_state", "redacts", "room_id", "sender", "signatures", "state_key", "type", "unsigned"),
)
"""Keys of an event that redaction keeps, in some room version, and ``unsigned``."""

_ENVELOPE_OF_UNSIGNED: Final = ("age", "age_ts", "prev_sender", "replaces_state", "transaction_id")
_IS_ID: Final = r"'\$\S{1,254}'"


def _other_keys(place: str, kept: Collection[str]) -> str:
    names = ", ".join(map(quote_literal, kept))
    return f"len(list_filter(json_keys(json, '{place}'), lambda k: k not in ({names}))) > 0"


def _is_text(place: str) -> str:
    return f"not regexp_full_match(json_extract_string(json, '{place}'), {_IS_ID})"


# What redaction keeps of a message is nothing, and of a redaction, since room version 11, the event that it names.
HAS_CONTENT: Final = {
    "json": "case when json_valid(json) then "
    + " or ".join(
        f"coalesce({one}, false)"
        for one in (
            "json_type(json, '$.content') not in ('OBJECT', 'NULL')",
            f"if(json_extract_string(json, '$.type') = 'm.room.redaction', {_other_keys('$.content', ['redacts'])}"
            f" or {_is_text('$.content.redacts')}, len(json_keys(json, '$.content')) > 0)",
            _is_text("$.redacts"),
            _other_keys("$", _ENVELOPE),
            _other_keys("$.unsigned", _ENVELOPE_OF_UNSIGNED),
        )
    )
    + " else true end",
    "aggregation_key": "true",
}
_IS_MESSAGE: Final = {
    "json": "case when json_valid(json) then json_extract(json, '$.state_key') is null else true end",
    "aggregation_key": "true",
}


def describe_references(
    connection: DuckDBPyConnection, settings: Settings, published: Collection[Release], content: FoundContent
) -> list[str]:
    """What keeps the files of ``content`` in the warehouse, in words.

    :param published: all releases, the latest first.
    """
    entry = list_catalog_entries(settings).get(content.table)
    if entry is None:
        return ["files of a table that the catalog no longer has: delete its folder"]
    metadata = duckdb_reader.read_metadata(connection, entry.location)
    wanted, latest = {to_path(file) for file in content.files}, next(iter(published))
    holding = {
        snapshot["snapshot-id"]: wanted & _files_of(connection, entry.location, snapshot["snapshot-id"])
        for snapshot in metadata["snapshots"]
    }
    found, explained = [], set[str]()
    if now := holding.get(latest.tables.get(content.table, 0), set()):
        explained |= now
        found.append("rows marked as deleted in files of the present release: the next maintenance rewrites these")
    earlier = [one for one in published if one is not latest and holding.get(one.tables.get(content.table, 0))]
    if earlier:
        explained = explained.union(*(holding[one.tables[content.table]] for one in earlier))
        until = earlier[0].published_at + timedelta(days=settings.lakehouse_erasure_days)
        numbers = f"{earlier[-1].number} to {earlier[0].number}" if len(earlier) > 1 else f"{earlier[0].number}"
        found.append(f"earlier release {numbers}: maintenance deletes it after {until:%Y-%m-%d %H:%M}Z")
    for name, ref in metadata.get("refs", {}).items():
        if name != "main" and ref["type"] == "branch" and (there := holding.get(ref["snapshot-id"], set()) - explained):
            explained |= there
            found.append(f"the branch {name} of a run: drop it with `lakehouse branches drop`")
    if set().union(*holding.values()) - explained:
        found.append("snapshots that no release has: the next maintenance deletes them")
    if wanted - set().union(*holding.values()):
        found.append("files that no table refers to: maintenance deletes them once they are six hours old")
    return found


def _files_of(connection: DuckDBPyConnection, location: str, snapshot_id: int) -> set[str]:
    rows = connection.execute(
        f"select file_path from iceberg_metadata({quote_literal(location)}, snapshot_from_id => {int(snapshot_id)})"  # noqa: S608
        " where status <> 'DELETED'"
    ).fetchall()
    return {to_path(file) for (file,) in rows}


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
