"""The holder of the lake lease, from the summary of the newest snapshot of ``audit.leases``. Imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final


@dataclass(frozen=True)
class LeaseHolder:
    """The holder of the lease, its branch, and the time at which the lease expires unless it is renewed.

    ``crashed``: branches of crashed holders that still exist, the latest last.
    """

    holder: str
    branch: str
    until: datetime
    crashed: tuple[str, ...] = ()

    def is_live(self, now: datetime) -> bool:
        """Return whether the lease has not expired."""
        return now < self.until

    def summary(self) -> dict[str, str]:
        """Return the properties that record it in a snapshot's summary."""
        return {
            "lease.holder": self.holder,
            "lease.branch": self.branch,
            "lease.until": self.until.isoformat(),
            "lease.crashed": " ".join(self.crashed),
        }


NOBODY: Final = LeaseHolder("", "", datetime.min.replace(tzinfo=UTC))
"""The lease before its first holder."""


def parse_last_lease(summary: Mapping[str, str | None]) -> LeaseHolder:
    """Return the lease in a snapshot's summary; its holder is empty after a release of the lease."""
    if not summary.get("lease.until"):
        return NOBODY
    return LeaseHolder(
        str(summary["lease.holder"]),
        str(summary["lease.branch"]),
        datetime.fromisoformat(str(summary["lease.until"])),
        tuple((summary.get("lease.crashed") or "").split()),
    )


def parse_current_lease(summary: Mapping[str, str | None]) -> LeaseHolder | None:
    """Return the lease in a snapshot's summary; None after a release of the lease."""
    last = parse_last_lease(summary)
    return last if last.holder else None
