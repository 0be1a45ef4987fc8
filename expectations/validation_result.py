"""The result of validating a run. This module does not import Great Expectations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.printable_text import to_printable


class ValidationFailedError(LakehouseError):
    """At least one expectation that blocks publishing was not met; the message lists all of them."""


@dataclass(frozen=True)
class CheckResult:
    """One expectation and whether it was met.

    ``type`` is Great Expectations' name of the expectation's class. ``expectation`` and ``observed`` are in words,
    without content. ``is_growing``: whether the check found lost data that the last release does not report.
    """

    suite: str
    type: str
    subject: str
    expectation: str
    severity: Literal["fail", "warn"]
    success: bool
    observed: str
    is_growing: bool = False

    @property
    def sentence(self) -> str:
        """Return one line, such as ``bronze.events: every event_id occurs once — 3 rows repeat a key``."""
        return to_printable(f"{self.subject}: {self.expectation} — {self.observed}")


@dataclass(frozen=True)
class ValidationResult:
    """All checks of one stage of a run. ``data_docs`` is the URL of the page with these checks."""

    stage: str
    checks: Sequence[CheckResult]
    data_docs: str

    @property
    def passed(self) -> int:
        """Number of expectations that were met."""
        return sum(check.success for check in self.checks)

    @property
    def warnings(self) -> list[CheckResult]:
        """Expectations that were not met but do not block publishing."""
        return [check for check in self.checks if not check.success and check.severity == "warn"]

    @property
    def failures(self) -> list[CheckResult]:
        """Expectations that were not met and block publishing."""
        return [check for check in self.checks if not check.success and check.severity == "fail"]

    @property
    def warned(self) -> int:
        """Number of warnings."""
        return len(self.warnings)

    @property
    def failed(self) -> int:
        """Number of failures."""
        return len(self.failures)

    def summary(self) -> str:
        """Return one line of counts, then one line for each failure and warning."""
        lines = [f"Audit of {self.stage}: {self.passed} checks passed, {self.warned} warned, {self.failed} failed."]
        lines += [f"  failed: {check.sentence}" for check in self.failures]
        lines += [f"  warned: {check.sentence}" for check in self.warnings]
        return "\n".join(lines)

    def raise_if_failed(self) -> None:
        """Raise :class:`ValidationFailedError` if there are failures."""
        if self.failures:
            raise ValidationFailedError(
                f"The audit of {self.stage} failed: {self.failed} of {len(self.checks)} checks failed. Nothing is "
                "published. Readers still see the previous release, and the run's branch is retained for inspection. "
                "The failed checks:\n"
                + "\n".join(f"  {check.sentence}" for check in self.failures)
                + f"\nAll checks: {self.data_docs}"
            )
