"""A run of the lakehouse for one data interval, and the names that follow from it."""

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
    """One attempt to bring the lake up to date for the interval [``start``, ``end``); ``run_id`` is Airflow's."""

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
        """Iceberg branch of this run on every table: its interval, and a hash that tells runs of one interval apart."""
        digest = hashlib.sha256(self.run_id.encode()).hexdigest()[:8]
        return f"{BRANCH_PREFIX}{_stamp(self.start)}_{digest}"

    @property
    def tag(self) -> str:
        """Iceberg tag of the interval once it is published."""
        return f"interval_{_stamp(self.start)}_{_stamp(self.end)}"

    def require_complete(self, now: datetime | None = None) -> None:
        """:raises IncompleteIntervalError: when the interval is not over yet: its facts are not all there."""
        if self.end > (now or datetime.now(UTC)):
            raise IncompleteIntervalError(
                f"The interval {self.start:%Y-%m-%dT%H:%MZ} to {self.end:%Y-%m-%dT%H:%MZ} is not over yet, so what "
                "belongs to it is not all there. Run it once it is over, or choose an earlier date."
            )

    def to_arguments(self) -> list[str]:
        """Command line arguments from which :func:`parse_run_arguments` makes the same run."""
        return ["--run-id", self.run_id, "--start", self.start.isoformat(), "--end", self.end.isoformat()]


def parse_run_arguments(description: str | None, arguments: list[str] | None = None) -> Run:
    """The run that a Spark app was started for."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--run-id", required=True, help="Airflow's run id")
    parser.add_argument("--start", required=True, type=datetime.fromisoformat, help="start of the interval, inclusive")
    parser.add_argument("--end", required=True, type=datetime.fromisoformat, help="end of the interval, exclusive")
    given = parser.parse_args(arguments)
    return Run(given.run_id, given.start, given.end)


def is_run_branch(name: str) -> bool:
    """Whether an Iceberg branch was made by a run."""
    return re.fullmatch(rf"{BRANCH_PREFIX}\d{{8}}T\d{{6}}Z_[0-9a-f]{{8}}", name) is not None


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
