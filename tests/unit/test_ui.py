"""``lakehouse ui`` stops all of its processes, even if the reader of its output has ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from synapse_lakehouse.cli.runs import ui
from synapse_lakehouse.local import child_processes
from synapse_lakehouse.local.postgres.embedded_postgres import find_free_port

SERVICE = """#!/bin/sh
echo $$ > "$SERVICES/$1"
exec sleep 600
"""

DRIVER = """
import os, socket, sys
from pathlib import Path
from synapse_lakehouse.cli.runs import ui
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local import child_processes
from synapse_lakehouse.local.airflow import prepare_airflow

home = Path(sys.argv[1])
prepare_airflow.BIN = home
ui._unhealthy = lambda port: set() if len(list((home / "services").iterdir())) == 4 else {"one"}
ui._refuses_strangers = lambda port: True
settings = Settings(_env_file=None, lakehouse_home=home)
with child_processes.interrupt_on_signals(), socket.create_server(("127.0.0.1", 0)) as listening:
    prepared = prepare_airflow.PreparedAirflow(settings, os.environ | {"SERVICES": str(home / "services")})
    ui._serve(prepared, listening.getsockname()[1])
"""

LOGIN_TTY = "import os, sys; os.login_tty(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"


@pytest.fixture
def command(tmp_path: Path) -> Iterator[list[str]]:
    """Return a command that runs four fake services of Airflow until it is stopped."""
    (tmp_path / "services").mkdir()
    (tmp_path / "airflow").write_text(SERVICE)
    (tmp_path / "airflow").chmod(0o700)
    yield [sys.executable, "-c", DRIVER, str(tmp_path)]
    for service in services(tmp_path):
        for member in child_processes.list_session_members({service}):
            os.kill(member, signal.SIGKILL)


@pytest.fixture
def server_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """Return the port of a server that responds to every request with the status of the parameter."""

    class StatusHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(request.param)
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), StatusHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(
    ("server_port", "refuses"), [(200, False), (400, True), (500, False)], indirect=["server_port"]
)
def test_an_airflow_that_accepts_any_host_is_detected(server_port: int, refuses: bool) -> None:
    assert ui._refuses_strangers(server_port) == refuses


@pytest.mark.parametrize("server_port", [400], indirect=True)
def test_the_host_check_uses_no_proxy(server_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{find_free_port()}")
    assert ui._refuses_strangers(server_port)


def services(home: Path) -> set[int]:
    return {int(file.read_text()) for file in (home / "services").iterdir()}


def read_until_ready(read: Callable[[], bytes]) -> None:
    output = b""
    while b"Ctrl-C stops everything" not in output:
        output += (data := read())
        assert data, output


def test_services_stop_when_the_reader_ends(command: list[str], tmp_path: Path) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
        assert driver.stdout
        read_until_ready(driver.stdout.readline)
        driver.stdout.close()
        driver.send_signal(signal.SIGINT)
        driver.wait(60)
    assert len(services(tmp_path)) == len(ui.COMPONENTS)
    assert child_processes.list_session_members(services(tmp_path)) == []


def test_services_are_stopped_when_the_terminal_is_closed(command: list[str], tmp_path: Path) -> None:
    controller, terminal = os.openpty()
    terminal_command = [sys.executable, "-c", LOGIN_TTY, str(terminal), *command]
    driver = subprocess.Popen(terminal_command, pass_fds=[terminal])
    os.close(terminal)
    read_until_ready(lambda: os.read(controller, 1024))
    os.close(controller)
    driver.wait(60)
    assert len(services(tmp_path)) == len(ui.COMPONENTS)
    assert child_processes.list_session_members(services(tmp_path)) == []
