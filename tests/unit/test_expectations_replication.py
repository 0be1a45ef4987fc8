"""What is expected of a tap: every row was heard, and no writer went back."""

from datetime import UTC, datetime
from typing import Any

from expectations import data_docs, replication_tap
from expectations.alert_findings import build_findings
from expectations.validation_result import ValidationResult
from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
from synapse_lakehouse.config.settings import Settings
from tests.support.validation import RUN

WARNS = "a warning: it keeps no release from being published"


def heard(stream: str, instance: str | None, **given: Any) -> dict[str, Any]:
    """A row of ``audit.replication_coverage``."""
    counts = {"heard": 40, "read": 2, "unexplained": 0, "went_back": 0, "missing": []}
    return {"stream": stream, "instance": instance} | counts | given


def test_what_a_tap_missed_warns_and_is_named(settings: Settings) -> None:
    missing = [
        {"first_id": 7, "last_id": 9, "side": "wire", "why": "never_announced"},
        {"first_id": 12, "last_id": 12, "side": "wire", "why": "gap: because"},
        {"first_id": 15, "last_id": 15, "side": "lake", "why": "room_deleted"},
    ]
    found = [
        heard("events", "ep1"), heard("events", "ep2", unexplained=3, missing=missing), heard("receipts", None),
        heard("to_device", "w", went_back=1),
    ]  # fmt: skip
    checks, _ = data_docs.validate_metrics(
        settings,
        RUN,
        "bronze",
        replication_tap.build_suite(found),
        replication_tap.collect_metrics(found),
        datetime.now(UTC),
    )
    assert len(checks) == 6
    judgement = ValidationResult("bronze", checks, "")
    assert build_findings(judgement, is_first=False, fails_on_warnings=False) == [
        AlertFinding(
            IncidentKind.REPLICATION,
            "replication of events",
            "every row was heard, unless the tap knows that it missed it — 3 ids never announced: 7..9 of ep2"
            " (80 heard, 4 read from the database)",
            WARNS,
        ),
        AlertFinding(
            IncidentKind.REPLICATION,
            "replication of to_device",
            "no writer goes back behind what it announced — 1 command behind an earlier one",
            WARNS,
        ),
    ]
    assert judgement.failed == 0
