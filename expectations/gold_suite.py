"""The suite of dbt's models and tests, derived from dbt's artifacts, and the metrics that it evaluates."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expectations.dbt_result_expectations import ExpectDbtTest, ExpectModelBuilt
from expectations.metric_expectation import FAIL, WARN, MetricExpectation, Metrics
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError


class DbtArtifactError(LakehouseError):
    """dbt's artifacts are missing or belong to another run."""


@dataclass(frozen=True)
class DbtArtifacts:
    """dbt's ``manifest.json`` (models and tests) and ``run_results.json`` (their status)."""

    manifest: Mapping[str, Any]
    results: Mapping[str, Any]

    def models(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Yield the name and the node of each model that is a table or a view in the lake."""
        for node in self.manifest["nodes"].values():
            if node["resource_type"] == "model" and node["config"]["materialized"] != "ephemeral":
                yield _name(node), node

    def tests(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Yield the name of the tested table and the node of each data test."""
        nodes = {**self.manifest["nodes"], **self.manifest["sources"]}
        for node in self.manifest["nodes"].values():
            if node["resource_type"] == "test":
                subject = node.get("attached_node") or next(iter(node["depends_on"]["nodes"]), None)
                yield _name(nodes[subject]) if subject else "dbt", node


def read_artifacts(settings: Settings, run: Run) -> DbtArtifacts:
    """Read the dbt artifacts that the lakehouse run ``run`` wrote.

    :raises DbtArtifactError: if they are missing or belong to another run.
    """
    folder = settings.lake_folder / "dbt" / "target"
    manifest, results = _read(folder / "manifest.json"), _read(folder / "run_results.json")
    built_by = results["metadata"]["env"].get("RUN_ID")
    if built_by != run.run_id:
        raise DbtArtifactError(
            f"dbt's results in {folder} are of run {built_by}, not of {run.run_id}, so they do not describe this run's "
            "branch. Clear the whole run, from open_run on."
        )
    return DbtArtifacts(manifest, results)


def build_suite(dbt: DbtArtifacts) -> list[MetricExpectation]:
    """Return expectations of every model and every test of dbt."""
    return [
        *(ExpectModelBuilt(column=subject, severity=FAIL, description="dbt built it") for subject, _ in dbt.models()),
        *(
            ExpectDbtTest(
                column=subject,
                test=node["name"],
                severity=WARN if node["config"]["severity"].lower() == "warn" else FAIL,
                description=f"dbt's test {node['name']} passes",
            )
            for subject, node in dbt.tests()
        ),
    ]


def collect_metrics(dbt: DbtArtifacts) -> dict[str, Metrics]:
    """Return dbt's results by subject."""
    results = {result["unique_id"]: result for result in dbt.results["results"]}
    metrics: dict[str, dict[str, Any]] = {
        subject: {"status": results.get(node["unique_id"], {}).get("status")} for subject, node in dbt.models()
    }
    for subject, node in dbt.tests():
        result = results.get(node["unique_id"], {})
        metrics.setdefault(subject, {}).update(
            {f"{node['name']}.status": result.get("status"), f"{node['name']}.failures": result.get("failures")}
        )
    return dict(metrics)


def _name(node: Mapping[str, Any]) -> str:
    return f"{node['schema']}.{node.get('alias') or node['identifier']}"


def _read(path: Path) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DbtArtifactError(
            f"{path} is missing, so dbt's results are unknown. Clear the whole run, from open_run on."
        ) from None
    return parsed
