"""What a gate found wrong, as those who send alerts want it: an incident for each subject and kind."""

from typing import Final

from expectations import integrity
from expectations.integrity import ExpectNoFinding
from expectations.replication_tap import ExpectNoTokenRegression, ExpectRowsReceived
from expectations.stalled_source import ExpectStandbyToReplay, ExpectStreamToAdvance
from expectations.streams import (
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
from expectations.validation_result import CheckResult, ValidationResult
from synapse_lakehouse.alerts.incidents import Finding, Kind, joined
from synapse_lakehouse.printable_text import to_printable

_BLOCKS: Final = "nothing is published while this is so"
_WARNS: Final = "a warning: it keeps no release from being published"
_FAILS_ON_WARNINGS: Final = "a warning, and this run was started to fail on any, so it publishes nothing"

_KINDS: Final = {
    ExpectNoLostId.expectation_type: Kind.LOST_IDS,
    ExpectNoLateId.expectation_type: Kind.LATE_IDS,
    ExpectUniqueStreamId.expectation_type: Kind.DUPLICATE_IDS,
    ExpectIdInOneTable.expectation_type: Kind.DUPLICATE_IDS,
    ExpectUnchangedRows.expectation_type: Kind.CHANGED_ROWS,
    ExpectGapsWithinBudget.expectation_type: Kind.GAP_BUDGET,
    ExpectStreamToAdvance.expectation_type: Kind.STANDING_STILL,
    ExpectStandbyToReplay.expectation_type: Kind.STANDING_STILL,
    ExpectNoPositionRegression.expectation_type: Kind.POSITION_WENT_BACK,
    ExpectSequenceNotBehind.expectation_type: Kind.SEQUENCE_BEHIND,
    ExpectNoVanishedWriter.expectation_type: Kind.WRITER_VANISHED,
    ExpectNoFinding.expectation_type: Kind.INTEGRITY,
    ExpectRowsReceived.expectation_type: Kind.REPLICATION,
    ExpectNoTokenRegression.expectation_type: Kind.REPLICATION,
}


def build_findings(judgement: ValidationResult, *, is_first: bool, fails_on_warnings: bool) -> list[Finding]:
    """What is wrong, from all checks that were not met; several of a kind about one subject are one finding.

    :param is_first: whether there is no release yet.
    :param fails_on_warnings: whether the run publishes nothing either if it only has warnings.
    """
    readers = "there is no release yet" if is_first else "readers have the release before"
    blocked, warned = f"{_BLOCKS}; {readers}", f"{_FAILS_ON_WARNINGS}; {readers}" if fails_on_warnings else _WARNS
    wrong = [(one, blocked) for one in judgement.failures] + [(one, warned) for one in judgement.warnings]
    return joined(
        Finding(_kind(one), one.subject, to_printable(f"{one.expectation} — {one.observed}"), consequence)
        for one, consequence in wrong
    )


def _kind(check: CheckResult) -> Kind:
    if check.subject == integrity.subject_of_check("event_lost"):
        return Kind.LOST_IDS
    return _KINDS.get(check.type, Kind.AUDIT_FAILED if check.severity == "fail" else Kind.AUDIT_WARNED)
