"""Validation of streams without configured writers: one check warns, and nothing blocks a release."""

import pytest

from expectations.alert_findings import build_findings
from expectations.stream_expectations import ExpectConfiguredWriters, ExpectNoProvisionalBound
from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.config.settings import Settings
from tests.support.validation import Rows, change, validate_run

SETTINGS = ("SYNAPSE_CONFIG", "LAKEHOUSE_STREAM_WRITERS")


def test_one_check_warns_of_all_provisional_bounds(settings: Settings) -> None:
    def plant(rows: Rows) -> None:
        for row in rows["stream_positions"][:2]:
            row["rule"] = "provisional"

    (check,) = validate_run(settings, plant).warnings
    assert check.type == ExpectNoProvisionalBound.expectation_type
    assert all(part in check.observed for part in ("backfill, events", *SETTINGS))


def test_writers_below_a_provisional_bound_are_named(settings: Settings) -> None:
    def plant(rows: Rows) -> None:
        rows["stream_positions"][0] |= {"rule": "provisional", "writers": [("ahead", 1300), ("behind", 1199)]}
        rows["stream_positions"][1] |= {"rule": "provisional", "writers": [("ahead", -90), ("late", -89)]}

    (check,) = validate_run(settings, plant).warnings
    assert check.observed.endswith("below the bound: backfill (late), events (behind)")


def test_an_unknown_writer_warns_while_a_bound_is_provisional(settings: Settings) -> None:
    plant = change("stream_positions", 0, rule="provisional", unknown_writers=["persister3"])
    types = {check.type: check.observed for check in validate_run(settings, plant).warnings}
    assert types.keys() == {
        ExpectNoProvisionalBound.expectation_type, ExpectConfiguredWriters.expectation_type,
    }  # fmt: skip
    assert "persister3" in types[ExpectConfiguredWriters.expectation_type]


@pytest.mark.parametrize("vanished", [[], ["persister2"]], ids=["first run of a former monolith", "removed worker"])
def test_one_check_warns_of_all_missing_learned_writers(settings: Settings, vanished: list[str]) -> None:
    def plant(rows: Rows) -> None:
        for row, writer in zip(rows["stream_positions"][:2], (["persister2"], []), strict=True):
            row |= {"rule": "missing_learned_writer", "safe_bound": None, "missing_writers": writer}
            row["vanished_writers"] = vanished

    result = validate_run(settings, plant)
    (check,) = result.warnings
    assert (check.type, result.failed) == (ExpectNoProvisionalBound.expectation_type, 0)
    assert all(part in check.observed for part in ("backfill", "events (persister2)", *SETTINGS))
    (finding,) = build_findings(result, is_first=False, fails_on_warnings=False)
    assert (finding.kind, finding.subject) == (IncidentKind.AUDIT_WARNED, "writers of the streams")


def test_faults_of_a_provisional_bound_do_not_hide_others(settings: Settings) -> None:
    plant = change(
        "stream_positions", 0, previous_rule="provisional", provisional_gaps=[("lost", 2)], gaps=[("lost", 1)],
        faults=["lost 9 in events", "provisional lost 7..8 in events"],
    )  # fmt: skip
    result = validate_run(settings, plant)
    (warning,), (failure,) = result.warnings, result.failures
    assert ("2 lost" in warning.observed, "7..8" in warning.observed, " 9 " in warning.observed) == (True, True, False)
    assert ("1 ID" in failure.observed, "7..8" in failure.observed, " 9 " in failure.observed) == (True, False, True)
