"""The gates of a run: what Great Expectations judges, and what becomes of the run then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from airflow.sdk import XComArg, get_current_context, task

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.orchestration.callbacks import AlreadyReportedError, add_run_details, report_findings
from synapse_lakehouse.orchestration.run_lifecycle import create_lease, get_run
from synapse_lakehouse.printable_text import get_printable_logger

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from expectations.validation_result import ValidationResult

log = get_printable_logger(__name__)


def create_validation_task(title: str, judge: Callable[[], None]) -> XComArg:
    """The task of a gate. It tells of what it finds wrong itself; only that it could not judge is told as a failure."""
    return task(task_display_name=title)(judge)()


def judge_bronze() -> None:
    """The gate between bronze and what is derived from it.

    :raises AlreadyReportedError: when a check that blocks publishing failed.
    """
    from expectations import validate

    _judge(validate.validate_bronze)


def judge_gold() -> None:
    """The gate between gold and its readers.

    :raises AlreadyReportedError: when a check that blocks publishing failed.
    """
    from expectations import validate

    _judge(validate.validate_gold)


def _judge(gate: Callable[[Settings, Catalog, Run], ValidationResult]) -> None:
    from expectations.alert_findings import build_findings
    from expectations.validation_result import ValidationFailedError
    from synapse_lakehouse.audit import store
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    context = get_current_context()
    run, settings = get_run(context), Settings()
    with closing(open_catalog(settings)) as catalog, create_lease(run, catalog, settings).heartbeat():
        judgement = gate(settings, catalog, run)
        is_first = store.read_latest_release(catalog) is None
    fails_on_warnings = context["params"]["fail_on_warnings"]
    found = build_findings(judgement, is_first=is_first, fails_on_warnings=fails_on_warnings)
    report_findings(settings, judgement.stage, add_run_details(found, run), judgement.data_docs)
    for line in judgement.summary().splitlines():
        log.info("%s", line)
    try:
        judgement.raise_if_failed()
    except ValidationFailedError as failure:
        raise AlreadyReportedError(str(failure)) from None
    if judgement.warnings and fails_on_warnings:
        raise AlreadyReportedError(
            f"The audit of {judgement.stage} has {judgement.warned} warnings and this run was started to fail on any, "
            "so nothing is published:\n" + "\n".join(f"  {check.sentence}" for check in judgement.warnings)
        )
