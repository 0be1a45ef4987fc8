"""Validate measures with Great Expectations, and keep its Data Docs under LAKEHOUSE_HOME."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import great_expectations as gx
from great_expectations.core import ExpectationValidationResult, RunIdentifier
from great_expectations.data_context.data_context.file_data_context import FileDataContext
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.data_context.types.resource_identifiers import ValidationResultIdentifier

from expectations import data_docs_theme
from expectations.metric_expectation import WARN, MetricExpectation, Metrics, build_metrics_frame
from expectations.validation_result import CheckResult
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings

_SITE: Final = "data_docs"


def validate_metrics(
    settings: Settings,
    run: Run,
    stage: str,
    suite: Sequence[MetricExpectation],
    subjects: Mapping[str, Metrics],
    now: datetime,
) -> tuple[list[CheckResult], str]:
    """Judge ``subjects`` by ``suite``: the checks in the suite's order, and the URL of the page that shows them."""
    context = _context(settings)
    _forget_the_oldest(context, stage)
    outcome = _checkpoint(context, stage, suite).run(
        batch_parameters={"dataframe": build_metrics_frame(subjects)},
        run_id=RunIdentifier(
            run_name=f"{run.run_id} ({run.start:%Y-%m-%dT%H:%MZ} to {run.end:%Y-%m-%dT%H:%MZ})", run_time=now
        ),
    )
    ((identifier, result),) = outcome.run_results.items()
    shown = [identifier, identifier.expectation_suite_identifier]
    context.build_data_docs(site_names=[_SITE], resource_identifiers=shown)  # type: ignore[arg-type]
    (page,) = context.get_docs_sites_urls(resource_identifier=identifier, site_names=[_SITE])
    return [_check(stage, one) for one in result.results], _served(settings, str(page["site_url"]))


def index_page(settings: Settings) -> Path:
    """Where Data Docs begin; it exists once a run was judged."""
    return settings.lakehouse_home / "data_docs" / "index.html"


def _served(settings: Settings, file: str) -> str:
    """Where people find a page of Data Docs, who may not be on the machine that wrote it."""
    if settings.lakehouse_data_docs_url is None:
        return file
    place = file.removeprefix(index_page(settings).parent.as_uri()).lstrip("/")
    return f"{settings.lakehouse_data_docs_url.rstrip('/')}/{place}"


def _context(settings: Settings) -> FileDataContext:
    context = gx.get_context(mode="file", project_root_dir=settings.lakehouse_home / "great_expectations")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    context.variables.data_docs_sites = {_SITE: data_docs_theme.site_configuration(index_page(settings).parent)}
    context.variables.save()
    return context


def _forget_the_oldest(context: FileDataContext, stage: str) -> None:
    store = context.validation_results_store
    kept = [key for key in store.list_keys() if isinstance(key, ValidationResultIdentifier)]
    kept = [key for key in kept if key.expectation_suite_identifier.name == stage]
    for key in sorted(kept, key=lambda key: key.run_id.run_time, reverse=True)[data_docs_theme.RETAINED_RESULTS - 1 :]:
        store.remove_key(key)  # type: ignore[no-untyped-call]


def _checkpoint(context: FileDataContext, stage: str, suite: Sequence[MetricExpectation]) -> gx.Checkpoint:
    for folder in ("checkpoints", "validation_definitions", "expectations"):
        # They are derived anew. To update them GX compares every expectation with every stored one: 8 s.
        (Path(context.root_directory) / folder / f"{stage}.json").unlink(missing_ok=True)
    source = context.data_sources.add_or_update_pandas(name="measures")
    batch = source.add_dataframe_asset(name=stage).add_batch_definition_whole_dataframe("whole")
    stored = context.suites.add(gx.ExpectationSuite(name=stage, expectations=list(suite)))
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=stage, data=batch, suite=stored))
    return context.checkpoints.add(
        gx.Checkpoint(name=stage, validation_definitions=[definition], result_format="BASIC")
    )


def _check(suite: str, one: ExpectationValidationResult) -> CheckResult:
    declared = one.expectation_config
    assert declared is not None
    return CheckResult(
        suite=suite,
        type=declared.type,
        subject=declared.kwargs["column"],
        expectation=str(declared.description),
        severity="warn" if declared.severity == WARN else "fail",
        success=bool(one.success),
        observed=one.result.get("observed_value") or "it could not be judged: see Data Docs",
    )
