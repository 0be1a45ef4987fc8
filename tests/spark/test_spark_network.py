"""Spark listens on 127.0.0.1 and requires its secret."""

import os
import subprocess
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.spark import spark_network
from synapse_lakehouse.iceberg.spark.spark_network import SparkSecretError
from synapse_lakehouse.java import class_archive, jars, runtime
from tests.conftest import BIN
from tests.support.sockets import listening_until_end

LOOPBACK = {ip_address("127.0.0.1")}
SESSION = """
from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.config.settings import Settings

spark = create_spark_session("test", Settings(_env_file=None))
assert spark.sparkContext.parallelize([1], 1).map(lambda number: number + 1).collect() == [2]
jvm = spark._jvm
driver = jvm.org.apache.spark.SparkEnv.get().rpcEnv().address()

def can_reach_driver(**properties):
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in properties.items():
        conf.set("spark." + name.replace("_", "."), value)
    security = jvm.org.apache.spark.SecurityManager(
        conf, getattr(getattr(jvm.scala, "None$"), "MODULE$"),
        getattr(getattr(jvm.org.apache.spark.internal.config, "package$"), "MODULE$").AUTH_SECRET_FILE(),
    )
    client = jvm.org.apache.spark.rpc.RpcEnv.create("client", "127.0.0.1", 0, conf, security, True)
    try:
        client.setupEndpointRef(driver, "HeartbeatReceiver")
    except Exception:
        return False
    finally:
        client.shutdown()
    return True

# This JVM contains the secret of the driver.
assert can_reach_driver(authenticate="true", network_crypto_enabled="true")
assert not can_reach_driver()
assert not can_reach_driver(authenticate="true")
"""
ARGUMENTS = """
import os
from pathlib import Path

from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.config.settings import Settings
from tests.support.sockets import descendants

spark = create_spark_session("test", Settings(_env_file=None))
assert spark.sparkContext.parallelize([1], 1).map(lambda number: number + 1).collect() == [2]
for pid in descendants(os.getpid()):
    print(Path(f"/proc/{pid}/cmdline").read_text())
"""
SECRET = "spark.authenticate true\nspark.authenticate.secret sesame\n"


def build_settings(secret_file: Path | None = None) -> Settings:
    return Settings(_env_file=None, lakehouse_spark_secret_file=secret_file)


@pytest.mark.parametrize("launcher", ["spark-submit", pytest.param("python", marks=pytest.mark.heavy)])
def test_a_driver_requires_its_secret(launcher: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "session.py").write_text(SESSION)
    assert find_listening_addresses(launcher, tmp_path / "session.py", home, tmp_path) == LOOPBACK


@pytest.mark.heavy
def test_class_recording_listens_on_loopback_only(home: Path, tmp_path: Path) -> None:
    app = PROJECT_FOLDER / "spark_apps" / "record_jvm_classes.py"
    assert find_listening_addresses("spark-submit", app, home, tmp_path) == LOOPBACK


def find_listening_addresses(launcher: str, app: Path, home: Path, folder: Path) -> set[IPv4Address | IPv6Address]:
    """Run ``app``, and return the addresses on which it listens."""
    settings = Settings(_env_file=None, lakehouse_home=home, lakehouse_catalog_uri="postgresql://u:p@127.0.0.1:9/lake")
    variables = {name: value for name, value in os.environ.items() if name not in {"SPARK_MASTER", "SPARK_LOCAL_IP"}}
    variables |= settings.to_environment() | {"PYTHONPATH": str(PROJECT_FOLDER)}
    command = [sys.executable]
    if launcher == "spark-submit":
        variables = runtime.build_java_environment(variables)
        class_path = class_archive.get_class_path(jars.install_jars(settings))
        command = [str(BIN / "spark-submit"), "--master", "local[1]", "--driver-class-path", class_path]
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen([*command, str(app)], env=variables, stdout=log, stderr=log, text=True)
        addresses = listening_until_end(process)
        log.seek(0)
        assert process.wait() == 0, log.read()
    return addresses


def test_drivers_on_a_cluster_use_its_secret_and_encryption(tmp_path: Path) -> None:
    file = tmp_path / "spark.secret"
    file.touch(mode=0o600)
    file.write_text(SECRET)
    properties = spark_network.get_network_properties("spark://master:7077", build_settings(file))
    assert properties["spark.authenticate.secret"] == "sesame"
    assert {
        properties[f"spark.{name}"] for name in ("authenticate", "network.crypto.enabled", "io.encryption.enabled")
    } == {"true"}
    assert "spark.driver.bindAddress" not in properties
    yarn_properties = spark_network.get_network_properties("yarn", build_settings())
    assert "spark.authenticate.secret" not in yarn_properties
    assert yarn_properties["spark.authenticate"] == "true"


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (None, 0o600, "No such file"),
        (SECRET, 0o640, r"open to other users \(mode 640\)"),
        (SECRET, 0o604, r"open to other users \(mode 604\)"),
        ("sesame\n", 0o600, "has no line"),
        ("spark.authenticate.secret \n", 0o600, "has no line"),
    ],
)
def test_an_unusable_secret_file_is_refused(content: str | None, mode: int, message: str, tmp_path: Path) -> None:
    file = tmp_path / "spark.secret"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(SparkSecretError, match=message) as error:
        spark_network.get_network_properties("spark://master:7077", build_settings(file))
    assert "sesame" not in str(error.value)


@pytest.mark.heavy
def test_the_secret_of_a_cluster_is_in_no_argument_list(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "spark.secret"
    file.touch(mode=0o600)
    file.write_text(SECRET)
    settings = Settings(_env_file=None, lakehouse_home=home, lakehouse_catalog_uri="postgresql://u:p@127.0.0.1:9/lake")
    settings = settings.model_copy(update={"lakehouse_spark_secret_file": file})
    variables = {
        "SPARK_MASTER": "local-cluster[1,1,1024]",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(PROJECT_FOLDER),
    }
    result = subprocess.run(
        [sys.executable, "-c", ARGUMENTS], env=os.environ | settings.to_environment() | variables, cwd=home, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "org.apache.spark.executor.CoarseGrainedExecutorBackend" in result.stdout
    assert "sesame" not in result.stdout


def test_a_cluster_without_a_secret_is_refused() -> None:
    with pytest.raises(SparkSecretError, match="LAKEHOUSE_SPARK_SECRET_FILE is not set"):
        spark_network.get_network_properties("spark://master:7077", build_settings())
