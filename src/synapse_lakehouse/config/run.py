"""A run of the lakehouse for one data interval, and its branch and tag names."""

import argparse
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from synapse_lakehouse.errors import LakehouseError

BRANCH_PREFIX = "run_"


class IncompleteIntervalError(LakehouseError):
    """The data interval of a run has not ended."""


@dataclass(frozen=True)
class Run:
    """A run for the data interval [``start``, ``end``); ``run_id`` is Airflow's."""

    run_id: str
    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise ValueError("a data interval needs a time zone, as in 2026-11-17T00:00:00+00:00")
        if not self.start < self.end:
            raise ValueError(f"the data interval is empty: it starts at {self.start} and ends at {self.end}")

    @property
    def branch(self) -> str:
        """Name of this run's branch on every table: the start of the interval, and a hash that distinguishes runs.

        The name has no capital letters: Spark first looks for a table ``branch_<name>``, and REST catalogs refuse table
        names with capital letters.
        """
        digest = hashlib.sha256(self.run_id.encode()).hexdigest()[:8]
        return f"{BRANCH_PREFIX}{_format_time(self.start).lower()}_{digest}"

    @property
    def tag(self) -> str:
        """Iceberg tag that marks the published state of the interval."""
        return f"interval_{_format_time(self.start)}_{_format_time(self.end)}"

    def require_complete(self, now: datetime | None = None) -> None:
        """Raise :class:`IncompleteIntervalError` if the interval has not ended, because its data is incomplete."""
        if self.end > (now or datetime.now(UTC)):
            raise IncompleteIntervalError(
                f"The interval {self.start:%Y-%m-%dT%H:%MZ} to {self.end:%Y-%m-%dT%H:%MZ} is not over yet, so its "
                "data is incomplete. Run again after its end, or choose an earlier date."
            )

    def to_arguments(self) -> list[str]:
        """Return the run as command line arguments for :func:`parse_run_arguments`."""
        return ["--run-id", self.run_id, "--start", self.start.isoformat(), "--end", self.end.isoformat()]


def parse_run_arguments(description: str | None, arguments: list[str] | None = None) -> Run:
    """Parse the run from the command line of a Spark app."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--run-id", required=True, help="Airflow's run id")
    parser.add_argument("--start", required=True, type=datetime.fromisoformat, help="start of the interval, inclusive")
    parser.add_argument("--end", required=True, type=datetime.fromisoformat, help="end of the interval, exclusive")
    parsed = parser.parse_args(arguments)
    return Run(parsed.run_id, parsed.start, parsed.end)


def is_run_branch(name: str) -> bool:
    """Return whether the Iceberg branch ``name`` belongs to a run."""
    return re.fullmatch(rf"{BRANCH_PREFIX}\d{{8}}t\d{{6}}z_[0-9a-f]{{8}}", name) is not None


def _format_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
