"""Validate a run's metrics: bronze before tables are derived from bronze, gold before it is published."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog

from expectations import (
    bronze_suite,
    gold_suite,
    gx_validation,
    integrity_expectations,
    progress_expectations,
    tap_expectations,
)
from expectations.metric_expectation import MetricExpectation, Metrics
from expectations.validation_result import ValidationResult
from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.streams.checks.stalled_writers import choose_compared_releases


def validate_bronze(settings: Settings, catalog: Catalog, run: Run) -> ValidationResult:
    """Validate the run's metrics of bronze; append every check to ``audit.checks``."""
    snapshots = store.read_run_rows(catalog, "audit.snapshots", run.run_id)
    absent = {name for row in snapshots for name in row["absent_objects"] or ()}
    declared = catalogue.load_catalogue().restrict_to_lake(absent)
    metrics = bronze_suite.collect_metrics(
        declared,
        snapshots=snapshots,
        ledger=store.read_run_rows(catalog, "audit.ledger", run.run_id),
        table_facts=store.read_run_rows(catalog, "audit.table_facts", run.run_id),
        stream_positions=store.read_run_rows(catalog, "audit.stream_positions", run.run_id),
        stream_facts=store.read_run_rows(catalog, "audit.stream_facts", run.run_id),
    )
    coverage = store.read_run_rows(catalog, "audit.replication_coverage", run.run_id)
    drifted = {name for row in snapshots for name, _ in row["drifted_tables"] or ()}
    hours = settings.lakehouse_stale_hours
    suite = [
        *bronze_suite.build_suite(declared, drifted, settings.lakehouse_gap_budget),
        *progress_expectations.build_suite(declared, hours),
        *tap_expectations.build_suite(coverage),
    ]
    for subject, samples in collect_samples(catalog, run, hours).items():
        metrics[subject] = {**metrics.get(subject, {}), **samples}
    return _validate(settings, catalog, run, "bronze", suite, metrics | tap_expectations.collect_metrics(coverage))


def validate_gold(settings: Settings, catalog: Catalog, run: Run) -> ValidationResult:
    """Validate the results of dbt's models and tests on the run's branch; append every check to ``audit.checks``.

    :raises DbtArtifactError: if dbt's artifacts are missing or belong to another run.
    """
    dbt = gold_suite.read_artifacts(settings, run)
    findings = store.read_run_rows(catalog, "audit.integrity", run.run_id)
    integrity = integrity_expectations.collect_metrics(findings)
    suite = [*gold_suite.build_suite(dbt), *integrity_expectations.build_suite()]
    result = _validate(settings, catalog, run, "gold", suite, gold_suite.collect_metrics(dbt) | integrity)
    growing = integrity_expectations.list_growing_losses(integrity)
    return replace(result, checks=[replace(check, is_growing=check.subject in growing) for check in result.checks])


def collect_samples(catalog: Catalog, run: Run, hours: int) -> dict[str, dict[str, Any]]:
    """Collect metrics of the source and the streams from two earlier releases and the run."""
    compared = choose_compared_releases(store.read_releases(catalog), datetime.now(UTC), hours) or ()

    def read_samples(name: str) -> list[list[dict[str, Any]]]:
        previous = [store.read_release_rows(catalog, name, release) for release in compared]
        return [*previous, store.read_run_rows(catalog, name, run.run_id)] if previous else []

    tables = ("audit.snapshots", "audit.stream_positions", "audit.stream_facts")
    return progress_expectations.collect_metrics(*map(read_samples, tables))


def _validate(
    settings: Settings,
    catalog: Catalog,
    run: Run,
    stage: str,
    suite: Sequence[MetricExpectation],
    metrics: Mapping[str, Metrics],
) -> ValidationResult:
    now = datetime.now(UTC)
    checks, page = gx_validation.validate_metrics(settings, run, stage, suite, metrics, now)
    rows = [
        {
            "stage": stage,
            "suite": check.suite,
            "expectation": check.expectation,
            "subject": check.subject,
            "severity": check.severity,
            "success": check.success,
            "observed": check.observed,
            "checked_at": now,
        }
        for check in checks
    ]
    store.append_audit_rows(catalog, "audit.checks", rows, run)
    return ValidationResult(stage, checks, page)
