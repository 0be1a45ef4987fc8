"""Releases: what readers see. One row of ``audit.releases``, written last, is the atomic truth.

Imports nothing heavy, so that the command line has it too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from synapse_lakehouse.run import Run

TABLE: Final = "audit.releases"


class ReleaseError(RuntimeError):
    """A run may not be published; readers see the release before."""


@dataclass(frozen=True)
class Release:
    """A row of ``audit.releases``, its columns in their order.

    ``tables`` maps names (``gold.events``) to snapshot ids, ``positions`` streams to safe bounds, ``views`` names to
    their SQL.
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


def before_interval(published: Sequence[Release], run: Run) -> Release | None:
    """The release that stood when ``run``'s interval was first published, or the latest if it never was.

    :param published: all releases, oldest first.
    """
    same = [one.number for one in published if (one.interval_start, one.interval_end) == (run.start, run.end)]
    earlier = [one for one in published if not same or one.number < min(same)]
    return earlier[-1] if earlier else None
