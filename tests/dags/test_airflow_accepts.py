"""Airflow accepts the commands of the services, and loads the project's plugin."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.test_compose import SERVICES, airflow_commands

PARSE = """
import json, sys
from airflow.cli.cli_parser import get_parser
for command in json.load(sys.stdin):
    get_parser().parse_args(command[1:])
"""
PLUGINS = """
from airflow import plugins_manager
apps, middlewares = plugins_manager.get_fastapi_plugins()
print([middleware["middleware"].__name__ for middleware in middlewares], plugins_manager.get_import_errors())
"""


def _python(code: str, home: Path, standard_input: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"AIRFLOW_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", code], input=standard_input, env=environment, text=True, capture_output=True, check=False
    )


def test_commands_of_services_are_accepted(tmp_path: Path) -> None:
    commands = [service["command"] for service in SERVICES.values() if service.get("command", [""])[0] == "airflow"]
    commands += airflow_commands("docker/initialise.sh")
    result = _python(PARSE, tmp_path, json.dumps(commands))
    assert len(commands) == 7
    assert result.returncode == 0, result.stderr


def test_the_plugin_of_trusted_hosts_is_loaded(tmp_path: Path) -> None:
    result = _python(PLUGINS, tmp_path)
    assert result.stdout.splitlines()[-1] == "['TrustedHostsMiddleware'] {}", result.stderr
