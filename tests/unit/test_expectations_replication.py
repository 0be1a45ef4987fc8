"""Expectations of a tap: every row was received, and no writer's token regressed."""

from datetime import UTC, datetime
from typing import Any

from expectations import gx_validation, tap_expectations
from expectations.alert_findings import build_findings
from expectations.validation_result import ValidationResult
from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.config.settings import Settings
from tests.support.validation import RUN


def coverage_row(stream: str, instance: str | None, **options: Any) -> dict[str, Any]:
    """Return a row of ``audit.replication_coverage``."""
    counts = {"tokens_received": 40, "tokens_read": 2, "unexplained": 0, "token_regressions": 0, "missing": []}
    return {"stream": stream, "instance": instance} | counts | options


def test_missed_ids_warn_and_are_listed(settings: Settings) -> None:
    missing = [
        {"first_id": 7, "last_id": 9, "side": "wire", "reason": "never_announced"},
        {"first_id": 12, "last_id": 12, "side": "wire", "reason": "gap: because"},
        {"first_id": 15, "last_id": 15, "side": "lake", "reason": "room_deleted"},
    ]
    coverage_rows = [
        coverage_row("events", "ep1"), coverage_row("events", "ep2", unexplained=3, missing=missing),
        coverage_row("receipts", None), coverage_row("to_device", "w", token_regressions=1),
    ]  # fmt: skip
    checks, _ = gx_validation.validate_metrics(
        settings,
        RUN,
        "bronze",
        tap_expectations.build_suite(coverage_rows),
        tap_expectations.collect_metrics(coverage_rows),
        datetime.now(UTC),
    )
    assert len(checks) == 6
    result = ValidationResult("bronze", checks, "")
    missed, regressed = build_findings(result, is_first=False, fails_on_warnings=False)
    assert (missed.kind, missed.subject) == (IncidentKind.REPLICATION, "replication of events")
    assert all(data in missed.description for data in ("3 IDs", "7..9 of ep2", "80 received", "4 read"))
    assert (regressed.kind, regressed.subject) == (IncidentKind.REPLICATION, "replication of to_device")
    assert "1 command" in regressed.description
    assert result.failed == 0
