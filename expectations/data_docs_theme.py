"""How Data Docs look: a first page with every audit, a page per audit, a page of what is expected.

Great Expectations' own pages fetch their scripts and styles from other people's servers and are blank without them,
count a warning as a failure, and take seconds to list fifty runs. These stand alone.
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
"""So many results of each suite are shown; ``audit.checks`` keeps them all."""

_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: to_printable(value) if type(value) is str else value,
)


def site_configuration(folder: Path) -> dict[str, Any]:
    """This site, in ``folder``, as Great Expectations wants it declared."""
    view = {"class_name": "Html", "module_name": __name__}
    return {
        "class_name": "SiteBuilder",
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {
            "class_name": "FirstPage",
            "module_name": __name__,
            "renderer": {"class_name": "AuditsRenderer", "module_name": __name__},
            "view": view,
        },
        "site_section_builders": {
            "validations": {"renderer": {"class_name": "AuditRenderer", "module_name": __name__}, "view": view},
            "expectations": {"renderer": {"class_name": "SuiteRenderer", "module_name": __name__}, "view": view},
            "profiling": "None",
        },
    }


class Html:
    """Turns what a renderer chose to show into a page: ``(template, values)``."""

    def __init__(self, **_: object) -> None: ...

    def render(self, document: tuple[str, Mapping[str, Any]], **_: object) -> str:
        """The whole page."""
        template, values = document
        return _TEMPLATES.get_template(template).render(values)


class AuditRenderer:
    """One stage of one run."""

    def __init__(self, **_: object) -> None: ...

    def render(self, result: ExpectationSuiteValidationResult) -> tuple[str, Mapping[str, Any]]:
        """All checks, by subject."""
        stored = result.to_json_dict()  # type: ignore[no-untyped-call]
        checks = [
            {
                "subject": one["expectation_config"]["kwargs"]["column"],
                "expectation": one["expectation_config"]["description"],
                "observed": one["result"].get("observed_value", "it could not be judged"),
                "state": _state(one),
            }
            for one in stored["results"]
        ]
        return "audit.html", _summary(stored) | {"checks": checks, "by_subject": _by_subject(checks)}


class SuiteRenderer:
    """What is expected at one stage."""

    def __init__(self, **_: object) -> None: ...

    def render(self, suite: ExpectationSuite) -> tuple[str, Mapping[str, Any]]:
        """All expectations, by subject."""
        expected = [
            {"subject": one.kwargs["column"], "expectation": one.description, "warns": one.severity == WARN}
            for one in suite.expectation_configurations
        ]
        return "suite.html", {"stage": suite.name, "by_subject": _by_subject(expected)}


class AuditsRenderer:
    """The first page."""

    def __init__(self, **_: object) -> None: ...

    def render(self, links: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """All audits and all suites."""
        suites = [
            {"name": link["expectation_suite_name"], "page": link["filepath"]}
            for link in links.get("expectations_links", [])
        ]
        return "first.html", {"audits": links["validations_links"], "suites": suites, "kept": RETAINED_RESULTS}


class FirstPage(DefaultSiteIndexBuilder):
    """Lists the audits, the latest first, from the stored results' JSON."""

    def _add_validations_to_index_links(
        self, index_links_dict: dict[str, Any], validation_result_site_keys: Iterable[ValidationResultIdentifier]
    ) -> None:
        results = self.data_context.validation_results_store
        audits = []
        for key in sorted(validation_result_site_keys, key=lambda key: key.run_id.run_time, reverse=True):
            place = results.key_to_tuple(key)
            stored = json.loads(results.store_backend.get(place))  # type: ignore[no-untyped-call]
            audits.append(_summary(stored) | {"page": f"validations/{quote('/'.join(place))}.html"})
        index_links_dict["validations_links"] = audits


def _summary(stored: Mapping[str, Any]) -> dict[str, Any]:
    counts = Counter(_state(one) for one in stored["results"])
    run = stored["meta"]["run_id"]
    return {
        "stage": stored["suite_name"],
        "run": run["run_name"],
        "judged": f"{datetime.fromisoformat(run['run_time']):%Y-%m-%d %H:%M:%S} UTC",
        "state": "failed" if counts["failed"] else "passed",
        "counts": {name: counts[name] for name in ("passed", "warned", "failed")},
    }


def _state(result: Mapping[str, Any]) -> str:
    if result["success"]:
        return "passed"
    return "warned" if result["expectation_config"]["severity"] == WARN else "failed"


def _by_subject(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["subject"], []).append(row)
    return found
