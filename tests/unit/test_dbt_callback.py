"""The changed rows of large models are searched when their inputs are built; an error there stops no build."""

from queue import Queue
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.dbt_build.changed_inputs import Increment
from synapse_lakehouse.dbt_build.dbt_callback import Finding
from synapse_lakehouse.dbt_build.incremental import Increments
from synapse_lakehouse.dbt_build.incremental_models import LARGE_MODELS, LargeModel
from synapse_lakehouse.iceberg.read.errors import LakeReadError

CATALOG, SETTINGS = cast("Catalog", None), Settings(_env_file=None)


class Broken(Increments):
    def look(self, *_: Any) -> None:
        raise LakeReadError("the catalog\nis away")


def event(name: str, model: str, status: str = "success") -> Any:
    data = SimpleNamespace(
        node_info=SimpleNamespace(node_name=model, unique_id=f"model.{model}"),
        run_result=SimpleNamespace(status=status),
    )
    return SimpleNamespace(info=SimpleNamespace(name=name), data=data)


def spark() -> SparkSession:
    return cast("SparkSession", SimpleNamespace(conf=SimpleNamespace(unset=lambda _: None)))


@pytest.mark.parametrize(("model", "count"), [("large", 1), ("small", 0)])
def test_an_error_causes_a_full_build(model: str, count: int) -> None:
    """dbt would take it for a fault of the model, and fail."""
    lines: list[str] = []
    broken = Broken((Increment(LargeModel("silver.large", {}, most=1)),), CATALOG)
    Finding(broken, spark, SETTINGS, "run", lines.append)(event("NodeExecuting", model))
    assert lines == ["large is made of everything, because finding less failed: the catalog is away"] * count


def test_changed_rows_are_searched_once_inputs_are_built() -> None:
    told = Queue[str]()

    class Looked(Increments):
        def look(self, settings: Settings, branch: str, model: str) -> None:
            told.put(f"look for {model}")

        def hand(self, spark: SparkSession, branch: str, model: str, found: Any) -> None:
            told.put(f"hand over {model}")

    def next_lines(count: int) -> list[str]:
        return [told.get(timeout=10) for _ in range(count)]

    finding = Finding(Looked(tuple(map(Increment, LARGE_MODELS)), CATALOG), spark, SETTINGS, "run", print)
    assert next_lines(1) == ["look for event_fields"]
    finding(event("NodeFinished", "event_fields", "error"))
    finding(event("NodeExecuting", "event_fields"))
    finding(event("NodeFinished", "event_fields"))
    assert next_lines(3) == ["hand over event_fields", "look for redactions", "look for event_visibility_inputs"]
    # Who builds one model alone has it looked for then.
    finding(event("NodeExecuting", "visibility_intervals"))
    assert next_lines(2) == ["look for visibility_intervals", "hand over visibility_intervals"]
    finding(event("NodeFinished", "event_visibility_inputs"))
    finding(event("NodeExecuting", "event_visibility_inputs"))
    assert next_lines(1) == ["hand over event_visibility_inputs"]
    assert told.empty()
