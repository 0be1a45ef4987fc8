"""What a gate found wrong, as those who send alerts want it: an incident for each subject and kind."""

from dataclasses import replace
from typing import Final

from expectations.freshness import ExpectSourceToMove, ExpectStreamToMove
from expectations.integrity import ExpectNoFinding
from expectations.judgement import Check, Judgement
from expectations.replication import ExpectPositionsNotToGoBack, ExpectRowsHeard
from expectations.streams import (
    ExpectBoundNotToGoBack,
    ExpectGapsWithinBudget,
    ExpectIdInOneTable,
    ExpectNoLateId,
    ExpectNoLostId,
    ExpectNoVanishedWriter,
    ExpectSequenceNotBehind,
    ExpectUnchangedRows,
    ExpectUniqueStreamId,
)
from synapse_lakehouse.alerts.incidents import Finding, Kind, joined

_BLOCKS: Final = "nothing is published while this is so; readers have the release before"
_WARNS: Final = "a warning: it keeps no release from being published"

_KINDS: Final = {
    ExpectNoLostId.expectation_type: Kind.LOST_IDS,
    ExpectNoLateId.expectation_type: Kind.LATE_IDS,
    ExpectUniqueStreamId.expectation_type: Kind.DUPLICATE_IDS,
    ExpectIdInOneTable.expectation_type: Kind.DUPLICATE_IDS,
    ExpectUnchangedRows.expectation_type: Kind.CHANGED_ROWS,
    ExpectGapsWithinBudget.expectation_type: Kind.GAP_BUDGET,
    ExpectStreamToMove.expectation_type: Kind.STANDING_STILL,
    ExpectSourceToMove.expectation_type: Kind.STANDING_STILL,
    ExpectBoundNotToGoBack.expectation_type: Kind.POSITION_WENT_BACK,
    ExpectSequenceNotBehind.expectation_type: Kind.SEQUENCE_BEHIND,
    ExpectNoVanishedWriter.expectation_type: Kind.WRITER_VANISHED,
    ExpectNoFinding.expectation_type: Kind.INTEGRITY,
    ExpectRowsHeard.expectation_type: Kind.REPLICATION,
    ExpectPositionsNotToGoBack.expectation_type: Kind.REPLICATION,
}


def findings(judgement: Judgement) -> list[Finding]:
    """What is wrong, from all checks that were not met; several of a kind about one subject are one finding."""
    wrong = (*judgement.failures, *judgement.warnings)
    blocking = {(_kind(one), one.subject) for one in judgement.failures}
    found = joined(Finding(_kind(one), one.subject, f"{one.expectation} — {one.observed}") for one in wrong)
    return [
        replace(one, said=f"{one.said}\n{_BLOCKS if (one.kind, one.subject) in blocking else _WARNS}") for one in found
    ]


def _kind(check: Check) -> Kind:
    return _KINDS.get(check.type, Kind.AUDIT_FAILED if check.severity == "fail" else Kind.AUDIT_WARNED)
