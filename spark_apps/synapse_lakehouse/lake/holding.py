"""Who holds the lake lease, as the head of ``audit.leases`` says in its summary. Imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Holding:
    """Who holds the lease, for which branch, and until when unless renewed; after that it counts as dead."""

    holder: str
    branch: str
    until: datetime

    def is_live(self, now: datetime) -> bool:
        """Whether the holder still counts as alive."""
        return now < self.until

    def summary(self) -> dict[str, str]:
        """What a snapshot's summary says of it."""
        return {"lease.holder": self.holder, "lease.branch": self.branch, "lease.until": self.until.isoformat()}


def from_summary(summary: Mapping[str, str | None]) -> Holding | None:
    """The holding that a snapshot's summary speaks of; None if the lease was given back."""
    if not summary.get("lease.holder"):
        return None
    return Holding(
        str(summary["lease.holder"]), str(summary["lease.branch"]), datetime.fromisoformat(str(summary["lease.until"]))
    )
