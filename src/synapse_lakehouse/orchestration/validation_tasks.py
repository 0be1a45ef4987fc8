"""The audit steps of a run: Great Expectations validates the branch, and failures stop the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param, XComArg, get_current_context, task

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.orchestration.callbacks import AlreadyReportedError, add_run_details, report_findings
from synapse_lakehouse.orchestration.dag_homeservers import load_task_settings
from synapse_lakehouse.orchestration.run_lifecycle import create_lease, get_run
from synapse_lakehouse.printable_text import get_printable_logger

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from expectations.validation_result import ValidationResult

log = get_printable_logger(__name__)

FAIL_ON_WARNINGS: Final[dict[str, Any]] = {
    "fail_on_warnings": Param(
        False,
        type="boolean",
        title="Fail on warnings",
        description="Treat warnings of the validation, such as a writer without a position, as failures.",
    )
}
"""Parameter of each DAG with a validation."""


def create_validation_task(task_id: str, title: str, validate: Callable[[], None]) -> XComArg:
    """Create the task of an audit step.

    Failed expectations have their own alerts. An alert about the failed task is sent only if the validation crashes.
    """
    return task(task_id=task_id, task_display_name=title)(validate)()


def validate_bronze() -> None:
    """Validate bronze before tables are derived from it.

    :raises AlreadyReportedError: when a check that blocks publishing failed.
    """
    from expectations import validate

    _validate(validate.validate_bronze)


def validate_gold() -> None:
    """Validate gold before it is published.

    :raises AlreadyReportedError: when a check that blocks publishing failed.
    """
    from expectations import validate

    _validate(validate.validate_gold)


def _validate(validate: Callable[[Settings, Catalog, Run], ValidationResult]) -> None:
    from expectations.alert_findings import build_findings
    from expectations.validation_result import ValidationFailedError
    from synapse_lakehouse.audit import store, task_costs
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    context = get_current_context()
    run, settings = get_run(context), load_task_settings(context["dag"].dag_id)
    with (
        closing(open_catalog(settings)) as catalog,
        create_lease(run, catalog, settings).heartbeat(),
        task_costs.record_cost(catalog, run, validate.__name__),
    ):
        result = validate(settings, catalog, run)
        is_first = store.read_latest_release(catalog) is None
    fails_on_warnings = context["params"]["fail_on_warnings"]
    findings = build_findings(result, is_first=is_first, fails_on_warnings=fails_on_warnings)
    report_findings(settings, result.stage, add_run_details(findings, run), result.data_docs)
    for line in result.summary().splitlines():
        log.info("%s", line)
    try:
        result.raise_if_failed()
    except ValidationFailedError as failure:
        raise AlreadyReportedError(str(failure)) from None
    if result.warnings and fails_on_warnings:
        raise AlreadyReportedError(
            f"The audit of {result.stage} has {result.warned} warnings. The run has the parameter fail_on_warnings, so "
            "nothing is published:\n" + "\n".join(f"  {check.sentence}" for check in result.warnings)
        )
