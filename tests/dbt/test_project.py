"""The dbt project's manifest: all models are described and owned, and none bypasses the audit."""

import re
from collections.abc import Iterator
from dataclasses import fields
from itertools import chain
from typing import Any

import pytest
import yaml
from dbt.adapters.spark.impl import SparkConfig
from dbt.artifacts.resources.v1.model import ModelConfig
from dbt.cli.main import dbtRunner

from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings

DBT = PROJECT_FOLDER / "dbt"
UNRESTRICTED = ("lakehouse_query", "lakehouse_connect")
"""Exposures that may read any table."""


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = str(tmp_path_factory.mktemp("dbt"))
    parsed = dbtRunner().invoke(
        ["parse", "--project-dir", str(DBT), "--profiles-dir", str(DBT), "--target-path", folder, "--log-path", folder,
         "--warn-error"]
    )  # fmt: skip
    assert parsed.success, parsed.exception
    content: dict[str, Any] = parsed.result.to_dict()  # type: ignore[union-attr]
    return content


@pytest.fixture
def models(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the models that are stored, or published as views."""
    return [model for model in _models(manifest) if model["config"]["materialized"] != "ephemeral"]


def _models(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [node for node in manifest["nodes"].values() if node["resource_type"] == "model"]


def _read_descriptions(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for item in [*_models(manifest), *manifest["sources"].values()]:
        yield f"{item['schema']}.{item['name']}", item["description"]
        for column in item["columns"].values():
            yield f"{item['schema']}.{item['name']}.{column['name']}", column["description"]
    for kind in ("exposures", "groups", "unit_tests"):
        for item in manifest[kind].values():
            yield f"{kind}.{item['name']}", item["description"]


def test_everything_is_described(manifest: dict[str, Any]) -> None:
    descriptions = dict(_read_descriptions(manifest))
    assert len(descriptions) > 300
    assert [name for name, text in descriptions.items() if not (text or "").strip()] == []


def test_dbt_accepts_every_key(manifest: dict[str, Any]) -> None:
    """Dbt 2 refuses other keys. In braces, an unquoted text with a comma becomes two keys."""
    accepted_keys = {field.name for config in (ModelConfig, SparkConfig) for field in fields(config)} | {
        "tblproperties"
    }
    assert {key for model in _models(manifest) for key in model["unrendered_config"]} - accepted_keys == set()
    files = [yaml.safe_load(file.read_text()) for file in (DBT / "models").rglob("*.yml")]
    items = [*chain.from_iterable(file.get("models", []) for file in files)]
    items += [table for file in files for source in file.get("sources", []) for table in source["tables"]]
    columns = [column for item in items for column in item.get("columns", [])]
    assert len(columns) > 1000
    assert {key for column in columns for key in column} == {"name", "data_type", "description", "config", "data_tests"}


def test_no_materialization_bypasses_the_audit(models: list[dict[str, Any]]) -> None:
    allowed = {"replace_on_branch", "affected_keys", "incremental", "view"}
    assert {model["config"]["materialized"] for model in models} <= allowed
    for model in models:
        assert model["config"]["tblproperties"]["write.wap.enabled"] == "true", model["name"]
        assert model["config"]["full_refresh"] is False, model["name"]


def test_models_keep_their_contract_and_have_an_owner(manifest: dict[str, Any], models: list[dict[str, Any]]) -> None:
    owners = {group["name"] for group in manifest["groups"].values()}
    for model in models:
        assert model["config"]["contract"]["enforced"], model["name"]
        assert all(column["data_type"] for column in model["columns"].values()), model["name"]
        assert model["group"] in owners, model["name"]
        key = model["config"]["meta"]["primary_key"]
        assert set(key) <= set(model["columns"]), model["name"]
    assert {model["access"] for model in models if model["schema"] == "gold"} == {"public"}


def test_every_model_is_tested(manifest: dict[str, Any], models: list[dict[str, Any]]) -> None:
    tested_models = {node["attached_node"] for node in manifest["nodes"].values() if node["resource_type"] == "test"}
    unit_tested_models = {test["model"] for test in manifest["unit_tests"].values()}
    ephemeral_models = {model["unique_id"] for model in _models(manifest)} - {model["unique_id"] for model in models}
    checks = {model["unique_id"] for model in _models(manifest) if model["path"].startswith("integrity/")}
    for model in models:
        # Other tests compare the views with Synapse's answers.
        assert model["unique_id"] in tested_models or model["config"]["materialized"] == "view", model["name"]
        # A model that only unites the checks has nothing to test.
        assert model["name"] in unit_tested_models or {*model["depends_on"]["nodes"]} <= checks, model["name"]
    assert {manifest["nodes"][model]["name"] for model in ephemeral_models} <= unit_tested_models


def test_the_key_of_every_table_is_tested(manifest: dict[str, Any], models: list[dict[str, Any]]) -> None:
    tests = [node for node in manifest["nodes"].values() if node["resource_type"] == "test"]
    tested_models = {test["attached_node"] for test in tests if test["test_metadata"]["name"] == "valid_key"}
    tested_models |= {
        test["attached_node"]
        for test in tests
        if test["test_metadata"]["name"] == "one_row_for_each"
        and manifest["nodes"][test["attached_node"]]["config"]["meta"]["primary_key"] == [test["column_name"]]
    }
    tables = [model for model in models if model["config"]["materialized"] != "view"]
    assert tables
    assert [table["name"] for table in tables if table["unique_id"] not in tested_models] == []


def test_the_names_of_the_contract_exist(models: list[dict[str, Any]]) -> None:
    columns = {f"{model['schema']}.{model['name']}": set(model["columns"]) for model in models}
    assert {"redacted_by", "stream_ordering", "topological_ordering"} <= columns["gold.events"]
    assert {"user_id", "room_id"} <= columns["gold.current_rooms"]
    assert "content" not in columns["gold.events"]
    assert set(columns["gold.event_visibility"]) == {
        "room_id",
        "user_id",
        "event_id",
        "peeking",
        "outcome",
        "rule",
        "membership",
    }
    assert {
        "gold.visibility_intervals", "gold.state_at_event", "gold.state_group_sizes", "gold.state_integrity",
        "gold.state_resets",
        "gold.room_timeline", "gold.replication_lag",
        "gold.room_last_change", "gold.user_last_membership_change", "gold.recent_events", "gold.user_event_feed",
        "gold.user_feed_starts",
    } <= columns.keys()  # fmt: skip


def test_every_gold_model_has_a_reader(manifest: dict[str, Any], models: list[dict[str, Any]]) -> None:
    gold = {model["unique_id"] for model in models if model["schema"] == "gold"}
    for exposure in manifest["exposures"].values():
        assert set(exposure["depends_on"]["nodes"]) <= gold, exposure["name"]
    exposures = [row for row in manifest["exposures"].values() if row["name"] not in UNRESTRICTED]
    assert gold == {node for item in exposures for node in item["depends_on"]["nodes"]}
    for name in UNRESTRICTED:
        exposure = manifest["exposures"][f"exposure.synapse_lakehouse.{name}"]
        assert set(exposure["depends_on"]["nodes"]) == gold, name


def test_exposures_name_existing_commands_and_tables(manifest: dict[str, Any]) -> None:
    from synapse_lakehouse.cli import app

    commands = {command.name or command.callback.__name__ for command in app.registered_commands}  # type: ignore[union-attr]
    commands |= {group.name for group in app.registered_groups}
    applications = [row for row in manifest["exposures"].values() if row["type"] == "application"]
    for exposure in applications:
        program, command = exposure["label"].split()
        assert program == "lakehouse"
        assert command.replace("-", "_") in {(name or "").replace("-", "_") for name in commands}
    sources = (PROJECT_FOLDER / "src" / "synapse_lakehouse" / "cli").rglob("*.py")
    names = {name for source in sources for name in re.findall(r"gold\.([a-z_]+)", source.read_text())}
    models = {node["name"] for node in manifest["nodes"].values() if node["resource_type"] == "model"}
    refs = {ref["name"] for item in applications if item["name"] not in UNRESTRICTED for ref in item["refs"]}
    assert refs == names & models


def test_exposures_name_the_documents_that_query_them(manifest: dict[str, Any]) -> None:
    analyses = [row for row in manifest["exposures"].values() if row["type"] == "analysis"]
    assert analyses
    for exposure in analyses:
        document = (PROJECT_FOLDER / exposure["config"]["meta"]["document"]).read_text()
        for ref in exposure["refs"]:
            assert f"gold.{ref['name']}" in document, (exposure["name"], ref["name"])


def test_nothing_is_fetched_and_no_python_shadows_dbt() -> None:
    assert not list(DBT.rglob("*.py"))
    for name in ("packages.yml", "dependencies.yml", "package-lock.yml"):
        assert not (DBT / name).exists()
    assert not [path for path in DBT.rglob("*") if path.name in {"target", "logs", "dbt_packages"}]


def test_dbt_alone_uses_the_defaults_of_the_settings() -> None:
    variables = yaml.safe_load((DBT / "dbt_project.yml").read_text())["vars"]
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    for variable, setting in [
        ("feed_length", "feed_length"),
        ("recent_rooms_per_user", "recent_rooms"),
        ("recent_events_per_room", "recent_events"),
    ]:
        assert variables[variable] == defaults[f"lakehouse_{setting}"]
