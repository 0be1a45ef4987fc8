"""The Spark properties of a session, on one machine and on a cluster."""

import json
from pathlib import Path

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.spark.session import SparkPropertiesError, get_session_properties

PARTITIONS = "spark.sql.shuffle.partitions"


def _settings(tmp_path: Path, properties: str = "{}") -> Settings:
    return Settings(
        _env_file=None, lakehouse_home=tmp_path, lakehouse_spark_properties=properties,
        lakehouse_catalog_uri="postgresql://lake@127.0.0.1/lake",
    )  # fmt: skip


def test_partitions_grow_with_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, partitions in ((None, "8"), (2, "8"), (16, "48")):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        assert get_session_properties("local[*]", _settings(tmp_path))[PARTITIONS] == partitions
        assert get_session_properties("yarn", _settings(tmp_path))[PARTITIONS] == "200"


def test_an_operator_sets_executors_and_partitions(tmp_path: Path) -> None:
    settings = _settings(tmp_path, '{"spark.executor.instances": "3", "spark.sql.shuffle.partitions": "600"}')
    properties = get_session_properties("yarn", settings)
    assert properties["spark.executor.instances"] == "3"
    assert properties[PARTITIONS] == "600"
    assert Settings(_env_file=None, **_lower(settings.to_environment())) == settings


@pytest.mark.parametrize(
    ("executors", "partitions"),
    [
        ({"cores.max": "300"}, "900"),
        ({"cores.max": "3", "executor.cores": "1"}, "200"),
        ({"executor.instances": "50", "executor.cores": "4"}, "600"),
        ({"executor.instances": "100"}, "300"),
        ({"executor.instances": "2", "dynamicAllocation.maxExecutors": "40", "executor.cores": "8"}, "960"),
        ({"executor.instances": "many", "cores.max": "-1"}, "200"),
    ],
)
def test_partitions_grow_with_the_executors(tmp_path: Path, executors: dict[str, str], partitions: str) -> None:
    settings = _settings(tmp_path, json.dumps({f"spark.{name}": value for name, value in executors.items()}))
    assert get_session_properties("yarn", settings)[PARTITIONS] == partitions


@pytest.mark.parametrize("name", ["spark.authenticate", "spark.redaction.regex", "spark.sql.defaultCatalog"])
def test_properties_of_the_lakehouse_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SparkPropertiesError, match=name):
        get_session_properties("local[2]", _settings(tmp_path, f'{{"{name}": "x"}}'))


def _lower(environment: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in environment.items()}
