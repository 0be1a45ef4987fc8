"""How Data Docs look: a page per run and stage, a first page that tells at a glance which of them passed.

Great Expectations counts a warning as a failure and, to write its first page, builds an object of every check that it
keeps (1 s for ten pages of ours). Here a warning is a warning, and only what the first page needs is read.
"""

import copy
import json
from collections.abc import Iterable
from typing import Any

from great_expectations.core import ExpectationSuiteValidationResult
from great_expectations.data_context.types.resource_identifiers import ValidationResultIdentifier
from great_expectations.render.components import RenderedHeaderContent, RenderedTableContent
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.renderer.site_builder import DefaultSiteIndexBuilder

from expectations.measures import WARN


class StagePage(ValidationResultsPageRenderer):
    """The checks of one stage of a run."""

    @classmethod
    def _render_validation_header(cls, validation_results: ExpectationSuiteValidationResult) -> RenderedHeaderContent:
        shown = copy.copy(validation_results)
        shown.success = not _count(validation_results)["failed"]
        header: RenderedHeaderContent = super()._render_validation_header(shown)  # type: ignore[no-untyped-call]
        return header

    @classmethod
    def _render_validation_statistics(
        cls, validation_results: ExpectationSuiteValidationResult
    ) -> RenderedTableContent:
        content: RenderedTableContent = super()._render_validation_statistics(validation_results)  # type: ignore[no-untyped-call]
        content.table = [[f"checks {name}", count] for name, count in _count(validation_results).items()]
        return content


class FirstPage(DefaultSiteIndexBuilder):
    """All stages of the runs that are kept, the latest first."""

    def _add_validations_to_index_links(
        self, index_links_dict: dict[str, Any], validation_result_site_keys: Iterable[ValidationResultIdentifier]
    ) -> None:
        results = self.data_context.validation_results_store
        for key in sorted(validation_result_site_keys, key=lambda key: key.run_id.run_time, reverse=True):
            text = results.store_backend.get(results.key_to_tuple(key))  # type: ignore[no-untyped-call]
            stored = json.loads(text)
            self.add_resource_info_to_index_links_dict(  # type: ignore[no-untyped-call]
                index_links_dict=index_links_dict,
                expectation_suite_name=key.expectation_suite_identifier.name,
                section_name="validations",
                batch_identifier=key.batch_identifier,
                run_id=key.run_id,
                validation_success=all(
                    one["success"] or one["expectation_config"]["severity"] == WARN for one in stored["results"]
                ),
                run_time=key.run_id.run_time,
                run_name=key.run_id.run_name,
                asset_name=stored["meta"]["active_batch_definition"]["data_asset_name"],
            )


def _count(result: ExpectationSuiteValidationResult) -> dict[str, int]:
    missed = [one.expectation_config for one in result.results if not one.success]
    warned = sum(config is not None and config.severity == WARN for config in missed)
    return {"passed": len(result.results) - len(missed), "warned": warned, "failed": len(missed) - warned}
