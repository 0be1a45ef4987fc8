"""Who holds the lake lease, as the head of ``audit.leases`` says in its summary. Imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final


@dataclass(frozen=True)
class LeaseHolder:
    """Who holds the lease, for which branch, and until when unless renewed; after that it counts as dead.

    ``crashed``: branches of holders that died, the latest last, of which nobody has disposed yet.
    """

    holder: str
    branch: str
    until: datetime
    crashed: tuple[str, ...] = ()

    def is_live(self, now: datetime) -> bool:
        """Whether the holder still counts as alive."""
        return now < self.until

    def summary(self) -> dict[str, str]:
        """What a snapshot's summary says of it."""
        return {
            "lease.holder": self.holder,
            "lease.branch": self.branch,
            "lease.until": self.until.isoformat(),
            "lease.crashed": " ".join(self.crashed),
        }


NOBODY: Final = LeaseHolder("", "", datetime.min.replace(tzinfo=UTC))
"""The lease before anybody took it."""


def parse_last_lease(summary: Mapping[str, str | None]) -> LeaseHolder:
    """What a snapshot's summary says of the lease; its holder is empty if it was given back."""
    if not summary.get("lease.until"):
        return NOBODY
    return LeaseHolder(
        str(summary["lease.holder"]),
        str(summary["lease.branch"]),
        datetime.fromisoformat(str(summary["lease.until"])),
        tuple((summary.get("lease.crashed") or "").split()),
    )


def parse_current_lease(summary: Mapping[str, str | None]) -> LeaseHolder | None:
    """The holding that a snapshot's summary speaks of; None if the lease was given back."""
    said = parse_last_lease(summary)
    return said if said.holder else None
