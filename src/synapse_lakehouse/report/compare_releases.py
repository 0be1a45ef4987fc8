"""Choose the release with which the page compares the latest one, and name the time between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release, exclude_compactions
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.report.format_values import format_value
from synapse_lakehouse.report.panel import Format
from synapse_lakehouse.report.release_diff import ReleaseDiff, read_release_diff

MAX_COMPARED_ROWS: Final = 2_000_000
"""Maximum number of rows of differing files that the comparison reads."""
_DAY: Final = (timedelta(hours=20), timedelta(hours=30))


@dataclass(frozen=True)
class Comparison:
    """The differences since an earlier release.

    ``reason``: the reason why ``diff`` is None, or "". ``period``: words such as "since yesterday".
    """

    diff: ReleaseDiff | None
    reason: str = ""
    period: str = "since the previous release"


def compare_releases(connection: DuckDBPyConnection, settings: Settings, releases: Sequence[Release]) -> Comparison:
    """Return the differences between the latest release and the newest release that is at least 20 hours older.

    If no release is old enough, compare with the oldest release. If the release cannot be read, compare with the next
    newer release.

    :param releases: all releases, the newest first.
    """
    earlier = [release for _, release in exclude_compactions(list(reversed(releases)))][:-1]
    if not earlier:
        return Comparison(
            None,
            "Not known: this is the first release. The next run shows the changes. "
            "Airflow (`make ui`) starts one every night.",
        )
    latest, failure = releases[0], ""
    day_old = [release for release in earlier if latest.published_at - release.published_at >= _DAY[0]]
    for before in earlier[max(0, len(day_old) - 1) :]:
        try:
            diff = read_release_diff(connection, settings, (before.number, latest.number), MAX_COMPARED_ROWS)
        except LakeReadError as error:
            # The release's Iceberg snapshots have expired. The snapshots of a later release may exist.
            failure = failure or str(error)
            continue
        return Comparison(diff, period=name_period(before, latest, is_previous=before is earlier[-1]))
    return Comparison(None, failure)


def name_period(before: Release, latest: Release, *, is_previous: bool) -> str:
    """Return the time between two releases in words, such as "since yesterday"."""
    age = latest.published_at - before.published_at
    if _DAY[0] <= age <= _DAY[1]:
        return "since yesterday"
    release = "the previous release" if is_previous else f"release {before.number}"
    unit = Format.HOURS if age >= timedelta(hours=2) else Format.SECONDS
    value = age / timedelta(hours=1) if unit is Format.HOURS else age.total_seconds()
    return f"since {release} ({format_value(value, unit)} earlier)"
