"""The gates of a run: what Spark counted on its branch is judged before anything is derived from it or published."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog

from expectations import bronze, data_docs, gold, integrity, replication_tap, stalled_source
from expectations.metric_expectation import MetricExpectation, Metrics
from expectations.validation_result import ValidationResult
from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.streams.checks.stalled_writers import choose_compared_releases


def validate_bronze(settings: Settings, catalog: Catalog, run: Run) -> ValidationResult:
    """Judge the run's measures of bronze; every check is written to ``audit.checks``, whatever comes of it."""
    known = catalogue.load_catalogue()
    snapshots = store.read_run_rows(catalog, "audit.snapshots", run.run_id)
    measures = bronze.collect_metrics(
        known,
        snapshots=snapshots,
        ledger=store.read_run_rows(catalog, "audit.ledger", run.run_id),
        table_facts=store.read_run_rows(catalog, "audit.table_facts", run.run_id),
        stream_positions=store.read_run_rows(catalog, "audit.stream_positions", run.run_id),
        stream_facts=store.read_run_rows(catalog, "audit.stream_facts", run.run_id),
    )
    heard = store.read_run_rows(catalog, "audit.replication_coverage", run.run_id)
    drifted = {name for one in snapshots for name, _ in one["drifted"] or ()}
    hours = settings.lakehouse_stale_hours
    suite = [
        *bronze.build_suite(known, drifted, settings.lakehouse_gap_budget),
        *stalled_source.build_suite(known, hours),
        *replication_tap.build_suite(heard),
    ]
    for subject, found in _moved(catalog, run, hours).items():
        measures[subject] = {**measures.get(subject, {}), **found}
    return _judge(settings, catalog, run, "bronze", suite, measures | replication_tap.collect_metrics(heard))


def validate_gold(settings: Settings, catalog: Catalog, run: Run) -> ValidationResult:
    """Judge what dbt built on the run's branch, dbt's own tests included, as :func:`validate_bronze` does.

    :raises ArtifactError: when dbt's artifacts are missing or of another run.
    """
    dbt = gold.read_artifacts(settings, run)
    facts, found = (store.read_run_rows(catalog, f"audit.{name}", run.run_id) for name in ("table_facts", "integrity"))
    measures = gold.collect_metrics(dbt, catalog, run.branch, facts) | integrity.collect_metrics(found)
    return _judge(settings, catalog, run, "gold", [*gold.build_suite(dbt), *integrity.build_suite()], measures)


def _moved(catalog: Catalog, run: Run, hours: int) -> dict[str, dict[str, Any]]:
    """What the run and two before it saw of the source."""
    before = choose_compared_releases(store.read_releases(catalog), datetime.now(UTC), hours) or ()

    def seen(name: str) -> list[list[dict[str, Any]]]:
        then = [store.read_release_rows(catalog, name, one) for one in before]
        return [*then, store.read_run_rows(catalog, name, run.run_id)] if then else []

    return stalled_source.collect_metrics(
        *map(seen, ("audit.snapshots", "audit.stream_positions", "audit.stream_facts"))
    )


def _judge(
    settings: Settings,
    catalog: Catalog,
    run: Run,
    stage: str,
    suite: Sequence[MetricExpectation],
    measures: Mapping[str, Metrics],
) -> ValidationResult:
    now = datetime.now(UTC)
    checks, page = data_docs.validate_metrics(settings, run, stage, suite, measures, now)
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
