"""Renderers of Data Docs: a page that lists all validations, a page for each validation, a page for each suite.

Great Expectations' own pages need scripts and styles from external servers. They also count a warning as a failure, and
take seconds to list fifty runs. These pages are self-contained.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from great_expectations.core import ExpectationSuite, ExpectationSuiteValidationResult
from great_expectations.data_context.types.resource_identifiers import ValidationResultIdentifier
from great_expectations.render.renderer.site_builder import DefaultSiteIndexBuilder
from jinja2 import Environment, FileSystemLoader

from expectations.metric_expectation import WARN
from synapse_lakehouse.printable_text import to_printable

RETAINED_RESULTS: Final = 50
"""Number of results of each suite in Data Docs; ``audit.checks`` contains all results."""

_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: to_printable(value) if type(value) is str else value,
)


def site_configuration(folder: Path) -> dict[str, Any]:
    """Return Great Expectations' configuration of the site in ``folder``."""
    view = {"class_name": "TemplateView", "module_name": __name__}
    return {
        "class_name": "SiteBuilder",
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {
            "class_name": "IndexBuilder",
            "module_name": __name__,
            "renderer": {"class_name": "IndexRenderer", "module_name": __name__},
            "view": view,
        },
        "site_section_builders": {
            "validations": {"renderer": {"class_name": "ValidationRenderer", "module_name": __name__}, "view": view},
            "expectations": {"renderer": {"class_name": "SuiteRenderer", "module_name": __name__}, "view": view},
            "profiling": "None",
        },
    }


class TemplateView:
    """Renders a page from the ``(template, values)`` that a renderer returns."""

    def __init__(self, **_: object) -> None: ...

    def render(self, document: tuple[str, Mapping[str, Any]], **_: object) -> str:
        """Return the HTML of the page."""
        template, values = document
        return _TEMPLATES.get_template(template).render(values)


class ValidationRenderer:
    """The page of one stage of one run."""

    def __init__(self, **_: object) -> None: ...

    def render(self, result: ExpectationSuiteValidationResult) -> tuple[str, Mapping[str, Any]]:
        """Return the template, and as its values all checks, by subject."""
        document = result.to_json_dict()  # type: ignore[no-untyped-call]
        checks = [
            {
                "subject": result["expectation_config"]["kwargs"]["column"],
                "expectation": result["expectation_config"]["description"],
                "observed": result["result"].get("observed_value", "not evaluated"),
                "state": _state(result),
            }
            for result in document["results"]
        ]
        return "validation.html", _summary(document) | {"checks": checks, "by_subject": _by_subject(checks)}


class SuiteRenderer:
    """The page of one suite."""

    def __init__(self, **_: object) -> None: ...

    def render(self, suite: ExpectationSuite) -> tuple[str, Mapping[str, Any]]:
        """Return the template, and as its values all expectations, by subject."""
        expectations = [
            {"subject": config.kwargs["column"], "expectation": config.description, "warns": config.severity == WARN}
            for config in suite.expectation_configurations
        ]
        return "suite.html", {"stage": suite.name, "by_subject": _by_subject(expectations)}


class IndexRenderer:
    """The page that lists all validations and suites."""

    def __init__(self, **_: object) -> None: ...

    def render(self, links: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the template, and as its values all validations and all suites."""
        suites = [
            {"name": link["expectation_suite_name"], "page": link["filepath"]}
            for link in links.get("expectations_links", [])
        ]
        return "index.html", {"validations": links["validations_links"], "suites": suites, "retained": RETAINED_RESULTS}


class IndexBuilder(DefaultSiteIndexBuilder):
    """Lists the validations, the latest first, from the stored results' JSON."""

    def _add_validations_to_index_links(
        self, index_links_dict: dict[str, Any], validation_result_site_keys: Iterable[ValidationResultIdentifier]
    ) -> None:
        results = self.data_context.validation_results_store
        validations = []
        for key in sorted(validation_result_site_keys, key=lambda key: key.run_id.run_time, reverse=True):
            path = results.key_to_tuple(key)
            document = json.loads(results.store_backend.get(path))  # type: ignore[no-untyped-call]
            validations.append(_summary(document) | {"page": f"validations/{quote('/'.join(path))}.html"})
        index_links_dict["validations_links"] = validations


def _summary(document: Mapping[str, Any]) -> dict[str, Any]:
    counts = Counter(_state(result) for result in document["results"])
    run = document["meta"]["run_id"]
    return {
        "stage": document["suite_name"],
        "run": run["run_name"],
        "validated": f"{datetime.fromisoformat(run['run_time']):%Y-%m-%d %H:%M:%S} UTC",
        "state": "failed" if counts["failed"] else "passed",
        "counts": {name: counts[name] for name in ("passed", "warned", "failed")},
    }


def _state(result: Mapping[str, Any]) -> str:
    if result["success"]:
        return "passed"
    return "warned" if result["expectation_config"]["severity"] == WARN else "failed"


def _by_subject(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    by_subject: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_subject.setdefault(row["subject"], []).append(row)
    return by_subject
