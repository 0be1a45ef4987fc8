"""Validation of gold: the results of dbt, and the findings of the integrity checks."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from pyiceberg.catalog.memory import InMemoryCatalog

from expectations import gold_suite, validate
from expectations.alert_findings import build_findings
from expectations.dbt_result_expectations import ExpectDbtTest, ExpectModelBuilt
from expectations.integrity_expectations import ExpectNoFinding
from expectations.metric_expectation import MetricExpectation
from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.room_state import integrity_checks

DAY = datetime(2026, 11, 17, tzinfo=UTC)
RUN = Run("scheduled__2026-11-18T00:00:00+00:00", DAY, DAY + timedelta(days=1))

MANIFEST: dict[str, Any] = {
    "nodes": {
        "model.p.events": {
            "unique_id": "model.p.events", "resource_type": "model", "schema": "gold", "alias": "events",
            "config": {"materialized": "replace_on_branch", "meta": {"primary_key": ["event_id"]}},
        },
        # An ephemeral model is no table, so it has no expectation.
        "model.p.findings": {
            "unique_id": "model.p.findings", "resource_type": "model", "schema": "silver", "alias": "findings",
            "config": {"materialized": "ephemeral", "meta": {}},
        },
        "test.p.unique_events": {
            "unique_id": "test.p.unique_events", "resource_type": "test", "name": "unique_events", "schema": "x",
            "attached_node": "model.p.events", "config": {"severity": "ERROR"}, "depends_on": {"nodes": []},
        },
        "test.p.agrees": {
            "unique_id": "test.p.agrees", "resource_type": "test", "name": "agrees", "schema": "x",
            "attached_node": None, "config": {"severity": "warn"}, "depends_on": {"nodes": ["source.p.synapse.rooms"]},
        },
    },
    "sources": {"source.p.synapse.rooms": {"schema": "bronze", "identifier": "rooms"}},
}  # fmt: skip


def results(**statuses: tuple[str, int | None]) -> dict[str, Any]:
    """Return dbt's ``run_results.json`` of ``RUN``, with ``statuses`` by the last part of a node ID."""
    ids = {identifier.rpartition(".")[2]: identifier for identifier in MANIFEST["nodes"]}
    actual = {"events": ("success", None), "unique_events": ("pass", 0), "agrees": ("pass", 0)} | statuses
    return {
        "metadata": {"env": {"RUN_ID": RUN.run_id}},
        "results": [
            {"unique_id": ids[name], "status": status, "failures": failures}
            for name, (status, failures) in actual.items()
        ],
    }


@pytest.fixture
def lake(settings: Settings) -> InMemoryCatalog:
    """Return a lake with the audit tables that the validation of gold reads and writes."""
    catalog = InMemoryCatalog("lake", warehouse=settings.warehouse)
    catalog.create_namespace("audit")
    for name in ("audit.snapshots", "audit.integrity", "audit.checks"):
        catalog.create_table(name, schema=store.AUDIT_SCHEMAS[name])
    record_findings(catalog)
    return catalog


def record_findings(catalog: InMemoryCatalog, **serious: int) -> None:
    """Record ``serious`` findings by check in audit.integrity, and one informational finding of each check."""
    rows = [
        {"check_name": check.name, "findings": 1 + serious.get(check.name, 0), "serious": serious.get(check.name, 0)}
        | dict.fromkeys(("rooms", "new_findings", "unexplained"), serious.get(check.name, 0))
        | {"counted_at": DAY + timedelta(seconds=len(serious))}
        for check in integrity_checks.INTEGRITY_CHECKS
    ]
    store.append_audit_rows(catalog, "audit.integrity", rows, RUN)


def write_artifacts(settings: Settings, run_results: dict[str, Any]) -> None:
    """Write artifacts to dbt's target folder."""
    target = settings.lakehouse_home / "dbt" / "target"
    target.mkdir(parents=True, exist_ok=True)
    (target / "manifest.json").write_text(json.dumps(MANIFEST), encoding="utf-8")
    (target / "run_results.json").write_text(json.dumps(run_results), encoding="utf-8")


def test_a_successful_dbt_build_passes(settings: Settings, lake: InMemoryCatalog) -> None:
    write_artifacts(settings, results())
    result = validate.validate_gold(settings, lake, RUN)
    result.raise_if_failed()
    assert [(check.type, check.subject) for check in result.checks] == [
        (ExpectModelBuilt.expectation_type, "gold.events"),
        (ExpectDbtTest.expectation_type, "gold.events"),
        (ExpectDbtTest.expectation_type, "bronze.rooms"),
        *((ExpectNoFinding.expectation_type, f"check {check.name}") for check in integrity_checks.INTEGRITY_CHECKS),
    ]
    recorded = lake.load_table("audit.checks").scan().to_arrow()
    assert set(recorded["stage"].to_pylist()) == {"gold"}
    assert recorded["severity"].to_pylist() == ["fail"] * 2 + ["warn"] * (1 + len(integrity_checks.INTEGRITY_CHECKS))


def test_integrity_findings_warn_and_block_no_release(settings: Settings, lake: InMemoryCatalog) -> None:
    write_artifacts(settings, results())
    record_findings(lake, state_reset=3)
    result = validate.validate_gold(settings, lake, RUN)
    result.raise_if_failed()
    (warning,) = result.warnings
    assert (warning.type, warning.subject) == (ExpectNoFinding.expectation_type, "check state_reset")
    assert "3 findings" in warning.observed
    (finding,) = build_findings(result, is_first=False, fails_on_warnings=False)
    assert (finding.kind, finding.subject) == (IncidentKind.WRONG_ANSWERS, "check state_reset")
    assert warning.observed in finding.description


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        ("event_missing", IncidentKind.DATA_LOSS),
        ("event_lost", IncidentKind.LOST_IDS),
        ("index_missing_entry", IncidentKind.DATA_LOSS),
        ("sliding_sync_outdated", IncidentKind.WRONG_ANSWERS),
        ("stray_event_rows", IncidentKind.INTEGRITY),
        ("retention_overdue", IncidentKind.INTEGRITY),
    ],
)
def test_the_alert_of_a_finding_states_the_harm(
    settings: Settings, lake: InMemoryCatalog, check: str, kind: IncidentKind
) -> None:
    write_artifacts(settings, results())
    record_findings(lake, **{check: 2})
    (finding,) = build_findings(validate.validate_gold(settings, lake, RUN), is_first=False, fails_on_warnings=False)
    assert (finding.kind, finding.subject) == (kind, f"check {check}")


@pytest.mark.parametrize(
    ("check", "is_growing"), [("event_missing", True), ("event_lost", True), ("state_reset", False)]
)
def test_an_alert_of_lost_data_grows_with_new_findings(
    settings: Settings, lake: InMemoryCatalog, check: str, is_growing: bool
) -> None:
    write_artifacts(settings, results())
    record_findings(lake, **{check: 2})
    (finding,) = build_findings(validate.validate_gold(settings, lake, RUN), is_first=False, fails_on_warnings=False)
    assert finding.is_growing == is_growing
    rows = store.read_run_rows(lake, "audit.integrity", RUN.run_id)
    old = [row | {"new_findings": 0, "counted_at": DAY + timedelta(days=1)} for row in rows if row["serious"]]
    store.append_audit_rows(lake, "audit.integrity", old, RUN)
    (finding,) = build_findings(validate.validate_gold(settings, lake, RUN), is_first=False, fails_on_warnings=False)
    assert not finding.is_growing


def test_findings_that_another_check_explains_are_no_alert(settings: Settings, lake: InMemoryCatalog) -> None:
    write_artifacts(settings, results())
    record_findings(lake, state_reset=3, sliding_sync_outdated=2)
    rows = store.read_run_rows(lake, "audit.integrity", RUN.run_id)
    explained_rows = [row | {"unexplained": 0} for row in rows if row["check_name"] == "sliding_sync_outdated"]
    other_rows = [row for row in rows if row["check_name"] != "sliding_sync_outdated"]
    store.append_audit_rows(
        lake,
        "audit.integrity",
        [row | {"counted_at": DAY + timedelta(hours=1)} for row in other_rows + explained_rows],
        RUN,
    )
    result = validate.validate_gold(settings, lake, RUN)
    assert [warning.subject for warning in result.warnings] == ["check state_reset"]


@pytest.mark.parametrize(
    ("statuses", "severity", "failed", "data"),
    [
        pytest.param({"unique_events": ("fail", 1234)}, "fail", [ExpectDbtTest], "1,234", id="a test that fails"),
        pytest.param({"agrees": ("warn", 2)}, "warn", [ExpectDbtTest], "2 rows", id="a test that warns"),
        pytest.param(
            {"events": ("error", None), "unique_events": ("skipped", None)},
            "fail",
            [ExpectModelBuilt, ExpectDbtTest],
            "log",
            id="a model that breaks",
        ),
    ],
)
def test_dbts_results_are_validated(
    settings: Settings,
    lake: InMemoryCatalog,
    statuses: dict[str, tuple[str, int | None]],
    severity: str,
    failed: list[type[MetricExpectation]],
    data: str,
) -> None:
    write_artifacts(settings, results(**statuses))
    checks = [check for check in validate.validate_gold(settings, lake, RUN).checks if not check.success]
    assert [check.type for check in checks] == [expectation.expectation_type for expectation in failed]
    assert {check.severity for check in checks} == {severity}
    assert data in checks[0].observed


def test_a_test_that_dbt_did_not_run_fails(settings: Settings, lake: InMemoryCatalog) -> None:
    dbt_results = results()
    dbt_results["results"].pop(1)
    write_artifacts(settings, dbt_results)
    (failure,) = validate.validate_gold(settings, lake, RUN).failures
    assert failure.type == ExpectDbtTest.expectation_type
    assert "unique_events.status" in failure.observed


def test_artifacts_of_another_run_are_refused(settings: Settings, lake: InMemoryCatalog) -> None:
    with pytest.raises(gold_suite.DbtArtifactError, match=r"manifest\.json"):
        validate.validate_gold(settings, lake, RUN)
    other_results = results()
    other_results["metadata"]["env"]["RUN_ID"] = "manual__2026-11-01"
    write_artifacts(settings, other_results)
    with pytest.raises(gold_suite.DbtArtifactError, match=r"manual__2026-11-01.*scheduled__2026-11-18"):
        validate.validate_gold(settings, lake, RUN)


def test_every_model_declares_its_key() -> None:
    folder = PROJECT_FOLDER / "dbt" / "models"
    declared = [path for layer in ("silver", "gold") for path in (folder / layer).rglob("*.yml")]
    models = [
        model for path in declared for model in yaml.safe_load(path.read_text(encoding="utf-8")).get("models", [])
    ]
    assert models
    assert [model["name"] for model in models if not model["config"].get("meta", {}).get("primary_key")] == []
