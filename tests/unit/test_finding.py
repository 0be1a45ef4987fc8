"""What a large model is made of when what changed in it cannot be found."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from synapse_lakehouse.lake.duck import LakeError
from synapse_lakehouse.modelling.finding import Finding
from synapse_lakehouse.modelling.increments import Increment, Increments
from synapse_lakehouse.settings import Settings


class Broken(Increments):
    def look(self, *_: Any) -> None:
        raise LakeError("the catalog\nis away")


def started(model: str) -> Any:
    return SimpleNamespace(
        info=SimpleNamespace(name="NodeStart"), data=SimpleNamespace(node_info=SimpleNamespace(node_name=model))
    )


@pytest.mark.parametrize(("model", "told"), [("large", 1), ("small", 0)])
def test_a_fault_is_told_and_leaves_dbt_to_make_the_model_whole(model: str, told: int) -> None:
    """dbt would wait for ever for a model of which a fault came out."""
    lines: list[str] = []
    broken, spark = Broken((Increment("silver.large", {}),), cast("Catalog", None)), cast("SparkSession", None)
    Finding(broken, spark, Settings(_env_file=None), "run", lines.append)(started(model))
    assert lines == ["large is made of everything, because less was not found: the catalog is away"] * told
