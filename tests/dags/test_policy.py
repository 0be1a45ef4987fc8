"""Rules for every DAG of the project."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER

if TYPE_CHECKING:
    from airflow.sdk import DAG

FILES = sorted((PROJECT_FOLDER / "dags").glob("*.py"))
HEAVY = {"pyspark", "great_expectations", "pandas", "pyarrow", "pyiceberg", "duckdb", "dbt", "numpy"}
LAYERS = {"layer:bronze", "layer:audit", "layer:silver", "layer:gold"}
TAGS = LAYERS | {"impact:reads-source", "impact:publishes", "impact:writes-source"}
PARSE_SECONDS = 2.0

PARSE = """
import json, resource, runpy, sys
import airflow.sdk

def seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

seconds_before, modules_before = seconds(), set(sys.modules)
runpy.run_path(sys.argv[1])
print(json.dumps({"seconds": seconds() - seconds_before, "modules": sorted(set(sys.modules) - modules_before)}))
"""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_dag_file_parses_quickly_without_heavy_imports(file: Path) -> None:
    result = subprocess.run([sys.executable, "-c", PARSE, file], capture_output=True, text=True, check=True)
    usage = json.loads(result.stdout.splitlines()[-1])
    assert usage["seconds"] < PARSE_SECONDS
    assert HEAVY.isdisjoint(name.partition(".")[0] for name in usage["modules"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_dag_file_imports_no_other_and_sets_catchup(file: Path) -> None:
    tree = ast.parse(file.read_text())
    imported_modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported_modules.isdisjoint(other.stem for other in FILES)
    keywords = {keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords}
    assert {"catchup", "max_active_runs", "dagrun_timeout"} <= keywords


def test_each_file_has_one_dag(dags: "dict[str, DAG]") -> None:
    assert sorted(dags) == [file.stem for file in FILES]


def test_doc_md_has_the_required_sections(dags: "dict[str, DAG]") -> None:
    for dag in dags.values():
        assert dag.doc_md
        for question in ("What it does", "When it fails", "Is a rerun safe?"):
            assert question in dag.doc_md, f"{dag.dag_id}: {question}"
        assert dag.description
        assert dag.dag_display_name != dag.dag_id


def test_tags_name_layer_and_impact(dags: "dict[str, DAG]") -> None:
    for dag in dags.values():
        assert set(dag.tags) <= TAGS
        assert {tag.partition(":")[0] for tag in dag.tags} == {"layer", "impact"}


def test_params_are_typed_and_described(dags: "dict[str, DAG]") -> None:
    for dag in dags.values():
        for name in dag.params:
            param = dag.params.get_param(name)
            assert param.schema.get("type"), f"{dag.dag_id}.{name}"
            assert param.schema.get("title"), f"{dag.dag_id}.{name}"
            assert param.description, f"{dag.dag_id}.{name}"


def test_tasks_have_display_names(dags: "dict[str, DAG]") -> None:
    for dag in dags.values():
        for task in dag.tasks:
            assert task.task_display_name != task.task_id


def test_every_failure_raises_an_alert(dags: "dict[str, DAG]") -> None:
    for dag in dags.values():
        assert dag.on_failure_callback, f"{dag.dag_id}: timeout"
        for task in dag.tasks:
            assert task.on_failure_callback, f"{dag.dag_id}.{task.task_id}"
