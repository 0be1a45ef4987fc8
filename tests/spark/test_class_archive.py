"""Drivers start with the class archive, and without it if it is absent."""

import subprocess
import sys
from pathlib import Path

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.java import class_archive, jars, runtime


def test_a_driver_loads_spark_and_iceberg_from_the_archive(home: Path, tmp_path: Path) -> None:
    settings = Settings(_env_file=None, lakehouse_home=home)
    jar_files = jars.install_jars(settings)
    options = class_archive.get_java_options(settings, jar_files)
    assert options.startswith(settings.lakehouse_driver_java_options)
    script, log = tmp_path / "loads.py", tmp_path / "loaded.log"
    script.write_text(
        "from pyspark import SparkContext\n"
        "SparkContext('local[1]')._jvm.java.lang.Class.forName('org.apache.iceberg.spark.SparkCatalog')\n"
    )
    subprocess.run(
        [Path(sys.executable).with_name("spark-submit"), "--driver-class-path", class_archive.get_class_path(jar_files),
         "--conf", f"spark.driver.defaultJavaOptions={options} -Xlog:class+load:file={log}", script],
        env=runtime.build_java_environment(), capture_output=True, check=True,
    )  # fmt: skip
    archived_classes = [line for line in log.read_text().splitlines() if "shared objects file (top)" in line]
    assert any("org.apache.spark.SparkContext " in line for line in archived_classes)
    assert any("org.apache.iceberg.spark.SparkCatalog " in line for line in archived_classes)


def test_without_an_archive_only_the_operators_options_are_used(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, lakehouse_home=tmp_path, lakehouse_driver_java_options="-Xss4m")
    assert class_archive.get_java_options(settings, [tmp_path / "one.jar"]) == "-Xss4m"
