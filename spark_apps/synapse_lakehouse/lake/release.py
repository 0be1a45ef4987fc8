"""Releases: what readers see. One row of ``audit.releases``, written last, is the atomic truth."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyiceberg.catalog import Catalog

from synapse_lakehouse.lake import audit
from synapse_lakehouse.run import Run

TABLE = "audit.releases"
STAGES = ("bronze", "gold")


class ReleaseError(RuntimeError):
    """A run may not be published, or a release does not exist."""


@dataclass(frozen=True)
class Release:
    """A published state of the lake: ``tables`` by snapshot id, ``positions`` of streams by name."""

    number: int
    run_id: str
    interval_start: datetime
    interval_end: datetime
    tables: Mapping[str, int]
    positions: Mapping[str, int]


def releases(catalog: Catalog) -> list[Release]:
    """All releases, oldest first."""
    rows = catalog.load_table(TABLE).scan().to_arrow().to_pylist()
    return sorted((_release(row) for row in rows), key=lambda release: release.number)


def before_interval(published: list[Release], run: Run) -> Release | None:
    """The release that stood when ``run``'s interval was first published, or the latest if it never was."""
    same = [one.number for one in published if (one.interval_start, one.interval_end) == (run.start, run.end)]
    earlier = [one for one in published if not same or one.number < min(same)]
    return earlier[-1] if earlier else None


def require_audited(catalog: Catalog, run: Run) -> tuple[int, int]:
    """How many checks of the run passed, and how many only warned.

    :raises ReleaseError: when a stage was not judged, or a check that blocks publishing failed.
    """
    checks = audit.of_run(catalog, "audit.checks", run.run_id)
    if unjudged := [stage for stage in STAGES if not any(check["stage"] == stage for check in checks)]:
        raise ReleaseError(f"Nothing is published: {' and '.join(unjudged)} of run {run.run_id} were never judged.")
    failed = [check for check in checks if not check["success"]]
    if blocking := [check for check in failed if check["severity"] == "fail"]:
        raise ReleaseError(
            f"Nothing is published: {len(blocking)} checks of run {run.run_id} failed, the first on "
            f"{blocking[0]['subject']} ({blocking[0]['expectation']}). Readers see the release before."
        )
    return len(checks) - len(failed), len(failed)


def _release(row: Mapping[str, Any]) -> Release:
    return Release(
        row["release"],
        row["run_id"],
        row["interval_start"],
        row["interval_end"],
        dict(row["tables"]),
        dict(row["positions"]),
    )
