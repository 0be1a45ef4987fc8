"""docker-compose.yaml obeys the compose specification, and its files, settings and commands exist."""

import json
import os
import re
import shlex
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import jsonschema
import pytest
import yaml
from packaging.specifiers import SpecifierSet

from synapse_lakehouse import catalogue
from synapse_lakehouse.compressor.postgres.progress_tables import PROGRESS_TABLES
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.local.airflow.prepare_airflow import POOLS
from synapse_lakehouse.postgres.access.grants import build_grants_sql
from synapse_lakehouse.replication.service import get_alive_file

COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT_FOLDER / "docker-compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ENVIRONMENT: list[tuple[str, str, str | None]] = [
    (service, name, value) for service, item in SERVICES.items() for name, value in item.get("environment", {}).items()
]
IMAGE_VARIABLES = {
    "POSTGRES_PASSWORD": "postgres: password of the superuser",
    "SYNAPSE_CONFIG_PATH": "synapse: configuration that its start script passes on",
    "NO_PROXY": "programs of all images: hosts to reach without a proxy",
    "no_proxy": "the same, for programs that read only this spelling",
    "GF_SECURITY_ADMIN_PASSWORD": "grafana: password of its user admin",
    "GF_ANALYTICS_REPORTING_ENABLED": "grafana: whether it reports its use to its makers",
    "GF_ANALYTICS_CHECK_FOR_UPDATES": "grafana: whether it looks for newer versions",
    "PGPASSWORD": "libpq: password where a connection names none",
}
SCRIPT_SERVICES = {"docker/postgres/initialise.sh": "postgres", "docker/initialise.sh": "airflow-init"}


def test_the_file_obeys_the_compose_specification() -> None:
    schema = json.loads(_package("check_jsonschema", "builtin_schemas/vendor/compose-spec.json").read_text())
    specification = jsonschema.validators.validator_for(schema)(schema)

    specification.validate(COMPOSE)
    with pytest.raises(jsonschema.ValidationError, match="healthchek"):
        specification.validate({"services": {"postgres": {"healthchek": {}}}})


def test_the_pools_equal_those_of_a_local_airflow() -> None:
    pools = [command[3:] for command in airflow_commands("docker/initialise.sh") if command[1:3] == ["pools", "set"]]

    assert pools == [[name, str(slots), description] for name, (slots, description) in POOLS.items()]


@pytest.mark.parametrize("service", ["spark-master", "spark-worker"])
def test_spark_has_the_class_that_a_service_runs(service: str) -> None:
    program, main, *_ = SERVICES[service]["command"]
    (core,) = _package("pyspark", "jars").glob("spark-core_*.jar")

    assert _package("pyspark", f"bin/{program}").exists()
    assert main.replace(".", "/") + ".class" in ZipFile(core).namelist()


def test_every_path_of_the_image_is_in_the_tree_and_copied() -> None:
    text = (PROJECT_FOLDER / "docker-compose.yaml").read_text()
    paths = set(re.findall(r"/app/([\w./-]+)", text))

    assert {"dags", "docker/healthy.py", "docker/initialise.sh"} <= paths
    assert [path for path in paths if not (PROJECT_FOLDER / path).exists() or not _in_build_context(path)] == []


def test_every_path_that_is_mounted_is_in_the_tree() -> None:
    mounted_files = [
        volume.split(":")[0]
        for item in SERVICES.values()
        for volume in item.get("volumes", [])
        if str(volume)[0] == "."
    ]

    assert len(mounted_files) == 10
    assert [path for path in mounted_files if not (PROJECT_FOLDER / path).is_file()] == []


def test_the_reader_has_the_grants_of_the_catalogue() -> None:
    reader_sql = PROJECT_FOLDER / "docker/postgres/reader.sql"
    expected = build_grants_sql(
        catalogue.load_catalogue(), Settings(_env_file=None), "lakehouse_reader", PROGRESS_TABLES
    )

    assert reader_sql.read_text() == expected, (
        f"uv run lakehouse grants --role lakehouse_reader > {reader_sql.relative_to(PROJECT_FOLDER)}"
    )


def test_no_environment_variable_is_unused() -> None:
    known_names = {name.upper() for name in Settings.model_fields} | _airflow_options() | IMAGE_VARIABLES.keys()
    known_names.add("AIRFLOW_CONN_SPARK_DEFAULT")
    unread = {(service, name) for service, name, _ in ENVIRONMENT if name not in known_names}

    assert {item for item in unread if not _read_by_its_script(*item)} == set()


def test_the_scheduler_receives_every_setting() -> None:
    names = {name.upper() for name in Settings.model_fields}

    assert names <= SERVICES["airflow-scheduler"]["environment"].keys()


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for item in SERVICES.values() for port in item.get("ports", [])]

    assert len(ports) == 5
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)


def test_no_service_can_gain_privileges() -> None:
    starts_as_root = {"postgres", "synapse"}

    assert {name for name, item in SERVICES.items() if item.get("cap_drop") != ["ALL"]} == set()
    assert {name for name, item in SERVICES.items() if item.get("security_opt") != ["no-new-privileges:true"]} == set()
    assert {name for name, item in SERVICES.items() if "cap_add" in item} == starts_as_root
    assert {name for name, item in SERVICES.items() if not item["read_only"]} == {"synapse"}
    assert not {
        name for name, item in SERVICES.items() if item.get("privileged") or "network_mode" in item or "pid" in item
    }


def test_read_only_services_have_temporary_folders() -> None:
    for name, item in SERVICES.items():
        mounts = [str(mount).partition(":")[0] for mount in [*item.get("volumes", []), *item.get("tmpfs", [])]]
        assert not item["read_only"] or name == "redis" or "/tmp" in mounts, name


def test_every_service_has_a_health_check_or_ends() -> None:
    one_shot_services = {
        name
        for item in SERVICES.values()
        for name, dependency in item.get("depends_on", {}).items()
        if dependency["condition"] == "service_completed_successfully"
    }

    assert one_shot_services == {"airflow-init"}
    assert {name for name, item in SERVICES.items() if "healthcheck" not in item} == one_shot_services


def test_services_wait_for_healthy_dependencies() -> None:
    for name, item in SERVICES.items():
        for needed, dependency in item.get("depends_on", {}).items():
            assert dependency["condition"] != "service_started", f"{name} does not wait for {needed}"
            assert not SERVICES[needed].get("profiles") or item.get("profiles"), f"{name} needs {needed} of a profile"


@pytest.mark.parametrize("homeserver", [None, "shop"])
def test_the_health_check_of_the_tap_reads_its_alive_file(homeserver: str | None, tmp_path: Path) -> None:
    service = SERVICES["replication-tap"]
    volume = service["environment"]["LAKEHOUSE_HOME"]
    settings = Settings(_env_file=None, lakehouse_home=tmp_path, lakehouse_homeserver=homeserver)
    _, check = service["healthcheck"]["test"]
    name = {"LAKEHOUSE_HOMESERVER": homeserver} if homeserver else {}
    command = ["sh", "-c", check.replace(volume, str(tmp_path))]
    alive = get_alive_file(settings)
    assert subprocess.run(command, env={"PATH": os.defpath} | name, check=False).returncode == 1
    alive.touch()
    assert subprocess.run(command, env={"PATH": os.defpath} | name, check=False).returncode == 0


def test_files_of_homeservers_are_mounted_where_they_are_read() -> None:
    folder = SERVICES["airflow-scheduler"]["environment"]["LAKEHOUSE_HOMESERVERS"]
    mounts = [volume for volume in SERVICES["airflow-scheduler"]["volumes"] if isinstance(volume, dict)]
    (mount,) = [volume for volume in mounts if "LAKEHOUSE_HOMESERVERS" in volume["source"]]
    assert folder == f"${{LAKEHOUSE_HOMESERVERS:+{mount['target']}}}"
    assert mount["read_only"]


def test_the_profile_sample_adds_a_homeserver() -> None:
    assert {name for name, item in SERVICES.items() if item.get("profiles") == ["sample"]} == {"redis", "synapse"}


def test_no_secret_has_a_value_in_the_file() -> None:
    for service, name, value in ENVIRONMENT:
        if re.search(r"PASSWORD$|SECRET(?!_FILE)|_KEY$", name):
            assert re.fullmatch(r"\$\{\w+:\?[^}]+\}", str(value)), f"{name} of {service}"
        if login := re.search(r"://[^:@/]+:(?P<password>[^@]*)@", str(value)):
            assert login["password"].startswith("${"), f"{name} of {service}"


def test_the_script_prints_all_passwords() -> None:
    output = subprocess.run([PROJECT_FOLDER / "docker/passwords.sh"], capture_output=True, text=True, check=True).stdout
    passwords = dict(line.split("=", 1) for line in output.splitlines())

    assert passwords.keys() == set(re.findall(r"\$\{(\w+):\?", (PROJECT_FOLDER / "docker-compose.yaml").read_text()))
    assert len(set(passwords.values())) == len(passwords)
    assert all(
        re.fullmatch(r"[0-9a-f]{64}", value) for name, value in passwords.items() if name != "AIRFLOW_FERNET_KEY"
    )
    assert re.fullmatch(r"[\w-]{43}=", passwords["AIRFLOW_FERNET_KEY"])


def test_no_other_user_may_read_the_passwords(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("LAKEHOUSE_LOG_LEVEL=INFO\n")
    file.chmod(0o644)
    with file.open("a") as output:
        subprocess.run([PROJECT_FOLDER / "docker/passwords.sh"], stdout=output, check=True)
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(file.read_text().splitlines()) > 2


def test_workers_share_code_and_files_with_drivers() -> None:
    driver, worker = SERVICES["airflow-scheduler"], SERVICES["spark-worker"]

    assert driver["image"] == worker["image"] == SERVICES["spark-master"]["image"]
    assert set(worker["volumes"]) <= {volume for volume in driver["volumes"] if isinstance(volume, str)}


def test_spark_services_share_a_secret() -> None:
    file = SERVICES["airflow-scheduler"]["environment"]["LAKEHOUSE_SPARK_SECRET_FILE"]
    for service in ("spark-master", "spark-worker"):
        command = SERVICES[service]["command"]
        assert command[command.index("--properties-file") + 1] == file
    writes = [line for line in _lines("docker/initialise.sh") if line.endswith('> "$LAKEHOUSE_SPARK_SECRET_FILE"')]
    assert len(writes) == 1
    assert SERVICES["spark-master"]["depends_on"].keys() == {"airflow-init"}
    outputs = [subprocess.check_output([PROJECT_FOLDER / "docker/spark-secret.sh"], text=True) for _ in range(2)]
    (first, _) = properties = [dict(line.split(" ", 1) for line in item.splitlines()) for item in outputs]
    assert len({item["spark.authenticate.secret"] for item in properties}) == 2
    assert first.items() >= {"spark.authenticate": "true", "spark.master.rest.enabled": "false"}.items()


def test_images_are_pinned() -> None:
    images = {name: item["image"] for name, item in SERVICES.items() if "build" not in item}
    synapse = images["synapse"].split(":v")[1]

    assert all(re.search(r":v?\d+\.\d+(\.\d+)?(-\w+)?$", image) for image in images.values())
    assert f'VERSION = "{synapse}"' in _lines("sample/environment.py")


def test_the_image_has_the_locked_packages_and_python() -> None:
    dockerfile = (PROJECT_FOLDER / "docker/Dockerfile").read_text()
    sources = [
        path
        for instruction in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
        for path in instruction.split()
    ]
    expected = tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text())["project"]["requires-python"]

    assert dockerfile.count("uv sync --locked --no-dev") == 2
    assert all((PROJECT_FOLDER / path).exists() and (path == "." or _in_build_context(path)) for path in sources)
    versions = re.findall(r"FROM python:([\d.]+)-", dockerfile)
    assert len(versions) == 2
    assert all(version in SpecifierSet(expected) for version in versions)
    assert dockerfile.rindex("USER lakehouse") > dockerfile.rindex("RUN")


def test_services_of_the_image_have_a_private_umask() -> None:
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.+)$", (PROJECT_FOLDER / "docker/Dockerfile").read_text(), re.MULTILINE)
    output = subprocess.run([*json.loads(entrypoint), "sh", "-c", "umask"], capture_output=True, text=True, check=True)
    assert output.stdout == "0077\n"
    assert not [name for name, item in SERVICES.items() if "build" in item and "entrypoint" in item]


def airflow_commands(script: str) -> list[list[str]]:
    """Return the arguments of each ``airflow`` command in a script."""
    lines = [line.strip().removesuffix(" || \\").removesuffix(" >/dev/null 2>&1") for line in _lines(script)]
    return [shlex.split(line) for line in lines if line.startswith("airflow ")]


def _read_by_its_script(service: str, name: str) -> bool:
    lines = [line for script, runner in SCRIPT_SERVICES.items() if runner == service for line in _lines(script)]
    return any(f"${name}" in line or f'"{name}"' in line for line in lines)


def _in_build_context(path: str) -> bool:
    allowed = [line[1:] for line in _lines(".dockerignore") if line.startswith("!")]
    return any(path == item or path.startswith(f"{item}/") for item in allowed)


def _lines(path: str) -> list[str]:
    return (PROJECT_FOLDER / path).read_text().splitlines()


def _package(name: str, path: str) -> Path:
    return Path(str(find_spec(name).origin)).parent / path  # type: ignore[union-attr]


def _airflow_options() -> set[str]:
    sections = yaml.safe_load(_package("airflow", "config_templates/config.yml").read_text())
    return {f"AIRFLOW__{section}__{option}".upper() for section, item in sections.items() for option in item["options"]}
