"""Find the first release with each pending background update, and the first release with its present progress."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.report.format_values import format_time

_TABLE: Final = "bronze.background_updates"
_MAX_SNAPSHOTS: Final = 100


@dataclass(frozen=True)
class Sighting:
    """A release that contains a pending update, and the time of its publication.

    Synapse does not record when an update began, so only the releases show it.
    """

    release: int
    published_at: datetime

    def __str__(self) -> str:
        """Return the release with its time."""
        return f"release {self.release} ({format_time(self.published_at)})"


@dataclass(frozen=True)
class PendingUpdate:
    """A background update that is not complete.

    ``waits_for``: the update that Synapse completes before it runs this one; None if Synapse runs this one.
    ``first_seen``: the oldest release since which each release has the update. ``unchanged_since``: the oldest release
    since which its progress is the same in each release. ``is_new``: whether the previous release lacks the update.
    """

    name: str
    waits_for: str | None
    progress: str | None
    first_seen: Sighting
    unchanged_since: Sighting
    is_new: bool


def read_pending_updates(connection: DuckDBPyConnection, settings: Settings) -> list[PendingUpdate]:
    """Return the background updates that are pending in the newest release, in the order in which Synapse runs them."""
    releases = duckdb_reader.list_releases(connection, settings)
    contents: dict[int, dict[str, dict[str, Any]]] = {}
    history: list[tuple[Sighting, dict[str, dict[str, Any]]]] = []
    for release in releases:
        snapshot = release.tables.get(_TABLE)
        if snapshot is None or (snapshot not in contents and len(contents) >= _MAX_SNAPSHOTS):
            break
        try:
            contents.setdefault(snapshot, _read(connection, settings, release) if snapshot not in contents else {})
        except LakeReadError:
            # The Iceberg snapshot has expired.
            break
        if not contents[snapshot]:
            break
        history.append((Sighting(release.number, release.published_at), contents[snapshot]))
    pending = history[0][1] if history else {}
    # Synapse runs one update at a time (synapse.storage.background_updates).
    running = next((name for name, row in pending.items() if row["depends_on"] not in pending), None)
    return [_follow(name, None if name == running else running, history) for name in pending]


def _read(connection: DuckDBPyConnection, settings: Settings, release: Release) -> dict[str, dict[str, Any]]:
    """Rows by name, in the order in which Synapse runs the updates."""
    duckdb_reader.create_views(connection, settings, release, [_TABLE])
    rows = duckdb_reader.read_rows(connection, f"from {_TABLE} order by ordering, update_name")
    return {row["update_name"]: row for row in rows}


def _follow(
    name: str, waits_for: str | None, history: Sequence[tuple[Sighting, dict[str, dict[str, Any]]]]
) -> PendingUpdate:
    newest = history[0][1][name]
    first_seen = unchanged_since = history[0][0]
    is_unchanged = True
    for sighting, updates in history:
        if name not in updates:
            break
        first_seen = sighting
        is_unchanged = is_unchanged and updates[name]["progress_digest"] == newest["progress_digest"]
        unchanged_since = sighting if is_unchanged else unchanged_since
    return PendingUpdate(
        name,
        waits_for,
        newest["progress_json"],
        first_seen,
        unchanged_since,
        first_seen is history[0][0],
    )
