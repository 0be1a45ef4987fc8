"""Releases: what readers see. One row of ``audit.releases``, written last, is the atomic truth.

Imports nothing heavy, so that the command line has it too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.errors import LakehouseError

RELEASES_TABLE: Final = "audit.releases"


class ReleaseError(LakehouseError):
    """A run may not be published; readers see the release before."""


@dataclass(frozen=True)
class Release:
    """A row of ``audit.releases``, its columns in their order.

    ``tables`` maps names (``gold.events``) to snapshot ids, ``positions`` streams to safe bounds, ``views`` names to
    their SQL. ``partial`` names tables of the source that could not be copied: they keep what they held before.
    ``accepted_at``: when its content was published first, as a compaction is the same in other files; lakes of earlier
    versions do not say.
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
    partial: Sequence[str] = ()
    accepted_at: datetime | None = None

    @property
    def audited_until(self) -> datetime:
        """What its run wrote down later is of another attempt: the run was cleared and tried again."""
        return self.accepted_at or self.published_at

    def is_compaction_of(self, former: "Release | None") -> bool:
        """Whether it is ``former``, the release before it, in other files. Earlier versions only told their run."""
        return former is not None and former.run_id == self.run_id and self.accepted_at in (None, former.audited_until)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Release":
        """The release of a row by column names. Lakes of earlier versions lack some columns."""
        values = {"number" if name == "release" else name: value for name, value in row.items()}
        maps = {name: dict(values[name]) for name in ("tables", "positions", "views")}
        return cls(**values | maps | {"partial": tuple(values.get("partial") or ())})


def describe_server_mismatch(latest: Release | None, server_name: str) -> str | None:
    """What to say where the ``latest`` release is of another homeserver than ``server_name``: stream ids of the one
    would be held against those of the other."""
    if latest is None or latest.server_name in (None, server_name):
        return None
    return (
        f"This lake holds releases of {latest.server_name}, but the homeserver to copy is {server_name} "
        "(SYNAPSE_SERVER_NAME, or the shipped sample's where nothing is set). Each homeserver needs a lake of its own, "
        "which the embedded catalog gives it: set LAKEHOUSE_CATALOG_URI and LAKEHOUSE_WAREHOUSE to others, or neither."
    )


def exclude_compactions(published: Sequence[Release]) -> list[tuple[Release | None, Release]]:
    """The releases that are more than others in other files, each after the one before it.

    :param published: all releases, oldest first.
    """
    pairs = zip([None, *published], published, strict=False)
    return [(former, one) for former, one in pairs if not one.is_compaction_of(former)]


def select_interval_releases(published: Sequence[Release], run: Run) -> list[tuple[Release | None, Release]]:
    """The releases of ``run``'s interval, each after the one before it: what it has more was seen first by its run.

    Compactions are left out, as they have nothing more.

    :param published: all releases, oldest first.
    """
    interval = run.start, run.end
    return [
        (former, one)
        for former, one in exclude_compactions(published)
        if (one.interval_start, one.interval_end) == interval
    ]


def compute_accepted_bounds(latest: Release | None, measured: Mapping[str, int | None]) -> dict[str, int]:
    """Safe bounds by stream that a new release accepts: as ``measured`` by its run; where that found none, as when a
    writer is missing, the bound of the ``latest`` release stays, for what it closed stays closed."""
    return {**(latest.positions if latest else {}), **{name: one for name, one in measured.items() if one is not None}}
