"""Validation of bronze: the checks that pass, fail and warn, and the data that they report."""

import re
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog

from expectations import bronze_suite, validate
from expectations.alert_findings import build_findings
from expectations.metric_expectation import MetricExpectation
from expectations.stream_expectations import (
    ExpectConfiguredWriters,
    ExpectGapsWithinBudget,
    ExpectIdInOneTable,
    ExpectNoLostId,
    ExpectNoPositionRegression,
    ExpectUnchangedRows,
    ExpectUniqueStreamId,
)
from expectations.table_expectations import ExpectKnownSchema, ExpectRowsOfSource, ExpectTableCopied, ExpectUniqueKey
from expectations.validation_result import CheckResult, ValidationFailedError, ValidationResult
from synapse_lakehouse import catalogue
from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from tests.support.bronze_faults import FAULTS
from tests.support.validation import DAY, DECLARED, RUN, Plant, Rows, change, validate_run


def failed_checks(checks: Sequence[CheckResult]) -> list[tuple[str, str]]:
    """Return the type and subject of each check."""
    return [(check.type, check.subject) for check in checks]


def expected_checks(checks: Sequence[tuple[type[MetricExpectation], str]]) -> list[tuple[str, str]]:
    """Return the pairs of :func:`failed_checks` for expectation classes."""
    return [(expectation.expectation_type, subject) for expectation, subject in checks]


def contains_in_order(text: str, data: str) -> bool:
    """Return whether ``text`` contains the parts of ``data`` in this order."""
    return bool(re.search(".*".join(map(re.escape, data.split(" … "))), text, re.DOTALL))


def test_a_healthy_run_passes(settings: Settings) -> None:
    result = validate_run(settings)
    result.raise_if_failed()
    assert (result.warned, result.failed) == (0, 0)
    assert result.passed == len(result.checks) == 37
    observed = {(check.type, check.subject): check.observed for check in result.checks}
    for expectation, subject, data in (
        (ExpectRowsOfSource, "bronze.events", "1,250 rows … 1,250"),
        (ExpectNoPositionRegression, "stream backfill", "-90 … -80"),
        (ExpectUnchangedRows, "stream events", "0 IDs … 12"),
        (ExpectGapsWithinBudget, "stream events", "3 of 100"),
    ):
        assert contains_in_order(observed[expectation.expectation_type, subject], data)
    unique_checks = [check for check in result.checks if check.type == ExpectUniqueStreamId.expectation_type]
    assert not any("deltas.stream_id" in check.expectation for check in unique_checks), "an ID may have several rows"


@pytest.mark.parametrize(
    ("plant", "severity", "failed", "data"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_a_fault_is_reported(
    settings: Settings, plant: Plant, severity: str, failed: list[tuple[type[MetricExpectation], str]], data: str
) -> None:
    result = validate_run(settings, plant)
    failures = [check for check in result.checks if not check.success]
    assert failed_checks(failures) == expected_checks(failed)
    assert {check.severity for check in failures} == {severity}
    assert contains_in_order(" ".join(check.observed for check in failures), data)
    if severity == "warn":
        result.raise_if_failed()
        assert result.warned == len(failed)
        assert f"warned: {failures[0].sentence}" in result.summary()
        return
    with pytest.raises(ValidationFailedError) as failure:
        result.raise_if_failed()
    assert all(check.sentence in str(failure.value) for check in failures)
    assert result.data_docs in str(failure.value)


def test_only_streams_with_several_tables_expect_ids_in_one() -> None:
    suite = bronze_suite.build_suite(catalogue.load_catalogue())
    subjects = {item.column for item in suite if isinstance(item, ExpectIdInOneTable)}
    assert subjects == {f"stream {name}" for name in ("events", "backfill", "pushers", "account_data")}
    success, observed = ExpectIdInOneTable(column="stream account_data")._evaluate({"shared_ids": 2})
    assert not success
    assert "2 IDs" in observed


@pytest.mark.parametrize(
    ("missing", "observed"),
    [(["persister4"], "persister4"), (["persister1", "persister2"], "persister1, persister2"), ([], "any writer")],
)
def test_a_writer_that_never_wrote_is_no_fault(settings: Settings, missing: list[str], observed: str) -> None:
    plant = change("stream_positions", 0, rule="missing_writer", safe_bound=None, missing_writers=missing)
    result = validate_run(settings, plant)
    assert all(check.success for check in result.checks)
    assert any(f"no position of {observed} yet" in check.observed for check in result.checks)


def test_a_removed_writer_with_a_position_is_no_fault(settings: Settings) -> None:
    result = validate_run(
        settings, change("stream_positions", 0, rule="unconfigured_writer", unknown_writers=["persister3"])
    )
    assert all(check.success for check in result.checks)
    assert any("persister3" in check.observed for check in result.checks)


@pytest.mark.parametrize(
    ("plant", "observed"),
    [
        pytest.param(change("stream_positions", 0, previous_bound=None), "1,200 … none", id="first bound"),
        pytest.param(change("stream_positions", 0, safe_bound=None, rule="unused"), "unused … 1,100", id="none"),
        pytest.param(change("stream_positions", 0, safe_bound=1100), "1,100 … 1,100", id="idle"),
    ],
)
def test_a_bound_that_did_not_regress_passes(settings: Settings, plant: Plant, observed: str) -> None:
    (check,) = [
        check
        for check in validate_run(settings, plant).checks
        if check.subject == "stream events" and check.type == ExpectNoPositionRegression.expectation_type
    ]
    assert check.success
    assert contains_in_order(check.observed, observed)


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(change("stream_positions", 0, closed_ids=99, rowless_ids=99), id="a few"),
        pytest.param(change("stream_positions", 0, closed_ids=400, rowless_ids=200), id="half of them"),
        pytest.param(
            change("stream_positions", 0, closed_ids=400, rowless_ids=390, gaps=[("purged", 1), ("rolled_back", 390)]),
            id="in a run that saw a purge",
        ),
        pytest.param(change("stream_positions", 0, closed_ids=None, rowless_ids=None), id="history"),
        pytest.param(change("stream_positions", 1, closed_ids=4000, rowless_ids=4000), id="in a stream that skips IDs"),
    ],
)
def test_gaps_within_the_budget(settings: Settings, plant: Plant) -> None:
    assert not validate_run(settings, plant).warned


def test_a_configured_budget_overrides_budgets_of_streams() -> None:
    def budgets(gap_budget: int | None) -> dict[str, int]:
        expected = bronze_suite.build_suite(catalogue.load_catalogue(), gap_budget=gap_budget)
        return {item.column: item.percent for item in expected if isinstance(item, ExpectGapsWithinBudget)}

    assert budgets(None)["stream events"] == 50
    assert set(budgets(80).values()) == {80}
    assert not {"stream backfill", "stream push_rules", "stream receipts"} & budgets(80).keys(), (
        "these streams skip IDs in normal operation"
    )


def test_a_table_that_was_not_copied_only_warns(settings: Settings) -> None:
    def plant(rows: Rows) -> None:
        rows["snapshots"][0]["drifted_tables"] = [
            ("deltas", "deltas has no column room_id."),
            ("invalidations", "Gone."),
        ]
        rows["ledger"] = [row for row in rows["ledger"] if row["table_name"] != "deltas"]
        rows["stream_facts"] = [row for row in rows["stream_facts"] if row["table_name"] != "invalidations"]
        rows["stream_positions"][0] |= {"rule": "not_copied", "safe_bound": 1100}

    result = validate_run(settings, plant)
    assert result.failed == 0
    assert failed_checks(result.warnings) == expected_checks(
        [
            (ExpectTableCopied, "bronze.deltas"),
            (ExpectTableCopied, "bronze.invalidations"),
            (ExpectConfiguredWriters, "stream events"),
        ]
    )
    assert contains_in_order(result.summary(), "deltas has no column room_id. … Gone.")


@pytest.mark.parametrize(
    ("unknown", "observed"),
    [
        ({"unknown_objects": ["polls", "events.mood"]}, r"^Not copied.*: polls, events\.mood\.$"),
        ({"schema_version": 999}, r"^The database has Synapse's schema version 999, .*Upgrade the lakehouse[^:]*$"),
        ({"schema_version": 999, "unknown_objects": ["polls"]}, r"schema version 999.* Not copied.*: polls\.$"),
    ],
    ids=["objects", "version", "both"],
)
def test_unknown_parts_of_the_schema_are_one_warning(
    settings: Settings, unknown: dict[str, object], observed: str
) -> None:
    result = validate_run(settings, change("snapshots", 0, **unknown))
    assert result.failed == 0
    assert failed_checks(result.warnings) == expected_checks([(ExpectKnownSchema, "schema of the source")])
    assert re.search(observed, result.warnings[0].observed)


def test_rows_may_repeat_if_the_catalogue_allows_it(settings: Settings) -> None:
    deltas = DECLARED.table("deltas").model_copy(update={"key_enforced": False, "repeats_keys": True})
    declared = DECLARED.model_copy(
        update={"tables": (DECLARED.table("events"), deltas, DECLARED.table("invalidations"))}
    )
    assert not validate_run(settings, change("table_facts", 1, duplicate_keys=1), declared).failed
    assert validate_run(settings, change("table_facts", 1, null_keys=1), declared).failed
    assert validate_run(settings, change("table_facts", 0, duplicate_keys=1), declared).failed


def test_an_uncalled_sequence_is_no_fault(settings: Settings) -> None:
    fresh = {"sequence_last_value": 1, "sequence_is_called": False, "largest_id": None, "writers": [("main", 1)]}
    result = validate_run(settings, change("stream_positions", 0, safe_bound=1, previous_bound=None, **fresh))
    assert result.warned == 0, "ID 1 counts as allocated from the start"


def test_every_table_and_stream_has_expectations() -> None:
    declared = catalogue.load_catalogue()
    columns = [item.column for item in bronze_suite.build_suite(declared)]
    assert {name for name in columns if name.startswith("bronze.")} == {
        f"bronze.{table.name}" for table in declared.copied_tables()
    }
    assert {name for name in columns if name.startswith("stream ")} == {
        f"stream {item.name}" for item in declared.streams
    }
    reported = [(item.column, item.description) for item in bronze_suite.build_suite(declared)]
    assert len(reported) == len(set(reported)), "subject and expectation identify a check in audit.checks"


def test_validation_reads_the_runs_rows_and_records_checks(settings: Settings) -> None:
    catalog = InMemoryCatalog("lake", warehouse=settings.warehouse)
    tables.ensure_audit_tables(catalog)
    declared = catalogue.load_catalogue()
    store.append_audit_rows(
        catalog, "audit.snapshots",
        [{"schema_version": 94, "unknown_objects": [], "taken_at": DAY, "began_at": DAY}], RUN,
    )  # fmt: skip
    store.append_audit_rows(
        catalog, "audit.ledger",
        [{"table_name": table.name, "rows_source": 7, "rows_read": 7, "rows_written": 7, "hash_read": "0",
          "hash_written": "0", "written_at": DAY}
         for table in declared.copied_tables()], RUN,
    )  # fmt: skip
    store.append_audit_rows(
        catalog, "audit.table_facts",
        [{"table_name": table.name, "rows": 7, "null_keys": 0, "duplicate_keys": int(table.name == "events"),
          "measured_at": DAY} for table in declared.copied_tables()], RUN,
    )  # fmt: skip
    store.append_audit_rows(
        catalog, "audit.stream_positions",
        [{"stream": item.name, "writers": [("main", 1)], "missing_writers": [], "rule": "configured", "safe_bound": 1,
          "sequence_last_value": 2, "sequence_is_called": True, "gaps": [], "shared_ids": 0, "faults": [],
          "regressions": [], "measured_at": DAY}
         for item in declared.streams], RUN,
    )  # fmt: skip
    store.append_audit_rows(
        catalog, "audit.stream_facts",
        [{"stream": item.name, "table_name": backing.name, "null_ids": 0, "duplicate_ids": 0, "reread_ids": 0,
              "measured_at": DAY}
         for item in declared.streams for backing, _ in declared.backing_tables(item.name)], RUN,
    )  # fmt: skip
    other_run = Run("another", RUN.start, RUN.end)
    store.append_audit_rows(
        catalog, "audit.table_facts", [{"table_name": "rooms", "rows": 0, "null_keys": 9}], other_run
    )

    result = validate.validate_bronze(settings, catalog, RUN)

    assert failed_checks(result.failures) == expected_checks([(ExpectUniqueKey, "bronze.events")])
    assert result.warned == 0, "without a tap, there is no expectation of a tap"
    rows: pa.Table = catalog.load_table("audit.checks").scan().to_arrow()
    columns = ("suite", "subject", "expectation", "severity", "success", "observed")
    recorded = [{name: row[name] for name in columns} for row in rows.to_pylist()]
    assert recorded == [{name: getattr(check, name) for name in columns} for check in result.checks]
    assert set(zip(rows["stage"].to_pylist(), rows["run_id"].to_pylist(), strict=True)) == {("bronze", RUN.run_id)}


@pytest.mark.parametrize(("is_first", "strict"), [(False, False), (False, True), (True, False), (True, True)])
def test_findings_merge_checks_and_state_the_consequence(is_first: bool, strict: bool) -> None:
    def check(subject: str, severity: Literal["fail", "warn"], observed: str) -> CheckResult:
        return CheckResult(
            "bronze", ExpectNoLostId.expectation_type, subject, "no row is gone", severity, False, observed
        )

    result = ValidationResult(
        "bronze", [check("a", "warn", "1 id"), check("a", "fail", "2 ids"), check("b", "warn", "3 ids")], ""
    )
    lost, warned = build_findings(result, is_first=is_first, fails_on_warnings=strict)
    assert [(finding.kind, finding.subject) for finding in (lost, warned)] == [
        (IncidentKind.LOST_IDS, "a"),
        (IncidentKind.LOST_IDS, "b"),
    ]
    assert [line.rpartition(" — ")[2] for line in lost.description.splitlines()] == ["2 ids", "1 id"]
    assert warned.description.endswith("3 ids")
    readers = "no release yet" if is_first else "previous release"
    assert readers in lost.consequence
    assert (readers in warned.consequence) is strict
