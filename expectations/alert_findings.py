"""Convert failed checks into findings for alerts: one finding for each subject and kind."""

from typing import Final

from expectations import integrity_expectations
from expectations.integrity_expectations import ExpectNoFinding
from expectations.progress_expectations import ExpectStandbyToReplay, ExpectStreamToAdvance
from expectations.stream_expectations import (
    ExpectGapsWithinBudget,
    ExpectIdInOneTable,
    ExpectNoLateId,
    ExpectNoLostId,
    ExpectNoPositionRegression,
    ExpectNoVanishedWriter,
    ExpectSequenceNotBehind,
    ExpectUnchangedRows,
    ExpectUniqueStreamId,
)
from expectations.tap_expectations import ExpectNoTokenRegression, ExpectRowsReceived
from expectations.validation_result import CheckResult, ValidationResult
from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind, merge_findings
from synapse_lakehouse.alerts.integrity_kinds import kind_of_check
from synapse_lakehouse.printable_text import to_printable

_BLOCKS: Final = "nothing is published until this fault is resolved"
_WARNS: Final = "a warning: it does not block the release"
_FAILS_ON_WARNINGS: Final = "a warning; this run fails on warnings, so it publishes nothing"

_KINDS: Final = {
    ExpectNoLostId.expectation_type: IncidentKind.LOST_IDS,
    ExpectNoLateId.expectation_type: IncidentKind.LATE_IDS,
    ExpectUniqueStreamId.expectation_type: IncidentKind.DUPLICATE_IDS,
    ExpectIdInOneTable.expectation_type: IncidentKind.DUPLICATE_IDS,
    ExpectUnchangedRows.expectation_type: IncidentKind.CHANGED_ROWS,
    ExpectGapsWithinBudget.expectation_type: IncidentKind.GAP_BUDGET,
    ExpectStreamToAdvance.expectation_type: IncidentKind.STANDING_STILL,
    ExpectStandbyToReplay.expectation_type: IncidentKind.STANDING_STILL,
    ExpectNoPositionRegression.expectation_type: IncidentKind.POSITION_WENT_BACK,
    ExpectSequenceNotBehind.expectation_type: IncidentKind.SEQUENCE_BEHIND,
    ExpectNoVanishedWriter.expectation_type: IncidentKind.WRITER_VANISHED,
    ExpectRowsReceived.expectation_type: IncidentKind.REPLICATION,
    ExpectNoTokenRegression.expectation_type: IncidentKind.REPLICATION,
}


def build_findings(result: ValidationResult, *, is_first: bool, fails_on_warnings: bool) -> list[AlertFinding]:
    """Build findings from all failed checks; checks of one kind about one subject become one finding.

    :param is_first: whether there is no release yet.
    :param fails_on_warnings: whether a warning blocks the run's release too.
    """
    readers = "there is no release yet" if is_first else "readers see the previous release"
    blocked, warned = f"{_BLOCKS}; {readers}", f"{_FAILS_ON_WARNINGS}; {readers}" if fails_on_warnings else _WARNS
    failed = [(check, blocked) for check in result.failures] + [(check, warned) for check in result.warnings]
    return merge_findings(
        AlertFinding(
            _kind(check),
            check.subject,
            to_printable(f"{check.expectation} — {check.observed}"),
            consequence,
            is_growing=check.is_growing,
        )
        for check, consequence in failed
    )


def _kind(check: CheckResult) -> IncidentKind:
    if check.type == ExpectNoFinding.expectation_type:
        return kind_of_check(integrity_expectations.check_of_subject(check.subject))
    return _KINDS.get(check.type, IncidentKind.AUDIT_FAILED if check.severity == "fail" else IncidentKind.AUDIT_WARNED)
