"""Read the holder of the lake lease from the summary of the newest snapshot of ``audit.leases``.

This module is fast to import.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final


@dataclass(frozen=True)
class LeaseHolder:
    """The holder of the lease, its branch, and the time at which the lease expires unless it is renewed.

    ``crashed``: branches that crashed holders left, the branch of the latest holder last.
    """

    holder: str
    branch: str
    until: datetime
    crashed: tuple[str, ...] = ()

    def is_live(self, now: datetime) -> bool:
        """Return whether the lease has not expired."""
        return now < self.until

    def summary(self) -> dict[str, str]:
        """Return the lease as properties for the summary of an Iceberg snapshot."""
        return {
            "lease.holder": self.holder,
            "lease.branch": self.branch,
            "lease.until": self.until.isoformat(),
            "lease.crashed": " ".join(self.crashed),
        }


NOBODY: Final = LeaseHolder("", "", datetime.min.replace(tzinfo=UTC))
"""The lease before its first holder."""


def parse_last_lease(summary: Mapping[str, str | None]) -> LeaseHolder:
    """Return the lease in an Iceberg snapshot's summary. Its holder is empty if the lease was released."""
    if not summary.get("lease.until"):
        return NOBODY
    return LeaseHolder(
        str(summary["lease.holder"]),
        str(summary["lease.branch"]),
        datetime.fromisoformat(str(summary["lease.until"])),
        tuple((summary.get("lease.crashed") or "").split()),
    )


def parse_current_lease(summary: Mapping[str, str | None]) -> LeaseHolder | None:
    """Return the lease in an Iceberg snapshot's summary; None if the lease was released."""
    last = parse_last_lease(summary)
    return last if last.holder else None
