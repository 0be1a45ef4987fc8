"""Validate metrics with Great Expectations, and store its Data Docs under LAKEHOUSE_HOME."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import great_expectations as gx
from great_expectations.core import ExpectationValidationResult, RunIdentifier
from great_expectations.data_context.data_context.file_data_context import FileDataContext
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.data_context.types.resource_identifiers import ValidationResultIdentifier

from expectations import data_docs_renderers
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
    """Validate ``subjects`` by ``suite``; return the checks in the suite's order, and the URL of their page."""
    context = _context(settings)
    _remove_oldest_results(context, stage)
    outcome = _checkpoint(context, stage, suite).run(
        batch_parameters={"dataframe": build_metrics_frame(subjects)},
        run_id=RunIdentifier(
            run_name=f"{run.run_id} ({run.start:%Y-%m-%dT%H:%MZ} to {run.end:%Y-%m-%dT%H:%MZ})", run_time=now
        ),
    )
    ((identifier, result),) = outcome.run_results.items()
    identifiers = [identifier, identifier.expectation_suite_identifier]
    context.build_data_docs(site_names=[_SITE], resource_identifiers=identifiers)  # type: ignore[arg-type]
    (page,) = context.get_docs_sites_urls(resource_identifier=identifier, site_names=[_SITE])
    return [_check_result(stage, check) for check in result.results], _public_url(settings, str(page["site_url"]))


def index_page(settings: Settings) -> Path:
    """Return the path of the first page of Data Docs. The first validation creates this page."""
    return settings.lake_folder / "data_docs" / "index.html"


def _public_url(settings: Settings, url: str) -> str:
    """Return the URL at which a page of Data Docs is served, or its file URL if no address is configured."""
    if settings.lakehouse_data_docs_url is None:
        return url
    path = url.removeprefix(index_page(settings).parent.as_uri()).lstrip("/")
    return f"{settings.lakehouse_data_docs_url.rstrip('/')}/{path}"


def _context(settings: Settings) -> FileDataContext:
    context = gx.get_context(mode="file", project_root_dir=settings.lake_folder / "great_expectations")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    context.variables.data_docs_sites = {_SITE: data_docs_renderers.site_configuration(index_page(settings).parent)}
    context.variables.save()
    return context


def _remove_oldest_results(context: FileDataContext, stage: str) -> None:
    store = context.validation_results_store
    keys = [key for key in store.list_keys() if isinstance(key, ValidationResultIdentifier)]
    keys = [key for key in keys if key.expectation_suite_identifier.name == stage]
    for key in sorted(keys, key=lambda key: key.run_id.run_time, reverse=True)[
        data_docs_renderers.RETAINED_RESULTS - 1 :
    ]:
        store.remove_key(key)  # type: ignore[no-untyped-call]


def _checkpoint(context: FileDataContext, stage: str, suite: Sequence[MetricExpectation]) -> gx.Checkpoint:
    for folder in ("checkpoints", "validation_definitions", "expectations"):
        # Every run creates the suite again. An update of the stored suite would take 8 s, because GX compares all pairs
        # of expectations.
        (Path(context.root_directory) / folder / f"{stage}.json").unlink(missing_ok=True)
    source = context.data_sources.add_or_update_pandas(name="metrics")
    batch = source.add_dataframe_asset(name=stage).add_batch_definition_whole_dataframe("whole")
    stored_suite = context.suites.add(gx.ExpectationSuite(name=stage, expectations=list(suite)))
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=stage, data=batch, suite=stored_suite))
    return context.checkpoints.add(
        gx.Checkpoint(name=stage, validation_definitions=[definition], result_format="BASIC")
    )


def _check_result(suite: str, result: ExpectationValidationResult) -> CheckResult:
    config = result.expectation_config
    assert config is not None
    return CheckResult(
        suite=suite,
        type=config.type,
        subject=config.kwargs["column"],
        expectation=str(config.description),
        severity="warn" if config.severity == WARN else "fail",
        success=bool(result.success),
        observed=result.result.get("observed_value") or "not evaluated; see Data Docs",
    )
