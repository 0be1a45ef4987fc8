"""Releases: the published Iceberg snapshots. A run publishes its release by appending a row to ``audit.releases``.

This module imports no library that is slow to import, because the command line uses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.errors import LakehouseError

RELEASES_TABLE: Final = "audit.releases"

FORMAT_PROPERTIES: Final = {"synapse-lakehouse.format": "4"}
"""Properties of a new table ``audit.releases``. The number increases when tables or columns are renamed or removed."""


def has_current_format(properties: Mapping[str, str]) -> bool:
    """Return whether a lake has the present format, according to the ``properties`` of its table ``audit.releases``."""
    return FORMAT_PROPERTIES.items() <= properties.items()


class ReleaseError(LakehouseError):
    """A run must not be published. Readers continue to see the previous release."""


@dataclass(frozen=True)
class Release:
    """A row of ``audit.releases``, with the columns in their order.

    * ``tables``: Iceberg snapshot ID by table name (``gold.events``).
    * ``positions``: safe bound by stream.
    * ``views``: SQL by view name.
    * ``partial``: tables of the source that could not be copied and have their previous content.
    * ``accepted_at``: time at which this content was first released (a compaction releases it again). Audit rows that
      the run wrote after this time belong to another try: the run was cleared and restarted.
    """

    number: int
    run_id: str
    interval_start: datetime
    interval_end: datetime
    branch: str
    tag: str
    server_name: str
    tables: Mapping[str, int]
    positions: Mapping[str, int]
    views: Mapping[str, str]
    checks_passed: int
    checks_warned: int
    published_at: datetime
    partial: Sequence[str]
    accepted_at: datetime

    def is_compaction_of(self, former: "Release | None") -> bool:
        """Return whether this release has the same content as ``former``, the previous release, in other files."""
        return former is not None and (former.run_id, former.accepted_at) == (self.run_id, self.accepted_at)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Release":
        """Return the release that ``row`` (values by column) describes."""
        values = {"number" if name == "release" else name: value for name, value in row.items()}
        maps = {name: dict(values[name]) for name in ("tables", "positions", "views")}
        return cls(**values | maps | {"partial": tuple(values["partial"] or ())})


def describe_server_mismatch(latest: Release | None, server_name: str) -> str | None:
    """Return a message if the ``latest`` release belongs to another homeserver than ``server_name``, else None.

    Stream IDs of two homeservers must not be compared.
    """
    if latest is None or latest.server_name == server_name:
        return None
    return (
        f"This lake contains releases of {latest.server_name}, but the homeserver to copy is {server_name} "
        "(SYNAPSE_SERVER_NAME; by default the homeserver of the shipped sample). Each homeserver needs its own lake. "
        "Set other values for LAKEHOUSE_CATALOG_URI and LAKEHOUSE_WAREHOUSE. An installation without "
        "LAKEHOUSE_HOMESERVERS may also remove both settings, and then uses the embedded catalog."
    )


def exclude_compactions(published: Sequence[Release]) -> list[tuple[Release | None, Release]]:
    """Return the pairs (previous release, release) of all releases that are not compactions.

    :param published: all releases, oldest first.
    """
    pairs = zip([None, *published], published, strict=False)
    return [(previous, release) for previous, release in pairs if not release.is_compaction_of(previous)]


def select_interval_releases(published: Sequence[Release], run: Run) -> list[tuple[Release | None, Release]]:
    """Return the pairs (previous release, release) of ``run``'s data interval, except compactions.

    :param published: all releases, oldest first.
    """
    interval = run.start, run.end
    return [
        (previous, release)
        for previous, release in exclude_compactions(published)
        if (release.interval_start, release.interval_end) == interval
    ]


def compute_accepted_bounds(latest: Release | None, measured: Mapping[str, int | None]) -> dict[str, int]:
    """Return, by stream, the safe bounds of a new release.

    If a stream has no measured bound, for example because a writer is missing, it keeps its bound of the ``latest``
    release, because closed IDs stay closed.

    :param measured: by stream, the bound that the run of the new release measured.
    """
    return {
        **(latest.positions if latest else {}),
        **{name: bound for name, bound in measured.items() if bound is not None},
    }
