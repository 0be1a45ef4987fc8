"""``lakehouse ui``: run all services of Airflow until Ctrl-C."""

import errno
import json
import socket
import subprocess
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Annotated
from urllib.error import HTTPError, URLError
from urllib.request import Request

import typer
from rich.text import Text

from synapse_lakehouse.cli.runs.run_output import console, print_stage
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.local import child_processes, home_lock, loopback
from synapse_lakehouse.local.airflow import credentials, prepare_airflow

READY_SECONDS = 180
_ANSWER_SECONDS = 30
# Tasks are children of the scheduler and report to the API server, so the scheduler is stopped first.
COMPONENTS = {
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "api-server": ("api-server",),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}


def ui(port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the web pages on 127.0.0.1.")] = 8080) -> None:
    """Start Airflow's api-server, scheduler, dag-processor and triggerer on 127.0.0.1; Ctrl-C stops them all."""
    require_free_port(port)
    try:
        with (
            child_processes.interrupt_on_signals(),
            prepare_airflow.prepare_airflow(port=port, report=print_stage) as prepared,
            home_lock.claim_for_scheduler(prepared.settings, f"http://127.0.0.1:{port}", print_stage),
        ):
            # Unfinished test runs were left by killed processes: all others ended before this scheduler got its lock.
            prepare_airflow.end_test_runs(prepared)
            _serve(prepared, port)
    except KeyboardInterrupt:
        # If standard output is a closed pipe, rich would end the command.
        with suppress(OSError, SystemExit):
            console.print("All services are stopped.")


def require_free_port(port: int) -> None:
    """Raise :class:`LakehouseError` if ``port`` is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            is_used = error.errno == errno.EADDRINUSE
            advice = (
                "Another program, perhaps another `make ui`, listens there: stop it, or choose" if is_used else "Choose"
            )
            other = port + 1 if 1024 <= port < 65535 else 8081
            raise LakehouseError(
                f"Port {port} on 127.0.0.1 cannot be used ({error.strerror}). {advice} another port, as in "
                f"`make ui PORT={other}` or `uv run lakehouse ui --port {other}`."
            ) from None


def _serve(prepared: prepare_airflow.PreparedAirflow, port: int) -> None:
    logs = prepared.settings.lakehouse_home / "logs" / "ui"
    logs.mkdir(parents=True, exist_ok=True)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        print_stage("starting Airflow")
        for name, arguments in COMPONENTS.items():
            with (logs / f"{name}.log").open("wb") as log:
                running[name] = child_processes.start_process(
                    [str(prepare_airflow.BIN / "airflow"), *arguments], prepared.environment, log.fileno()
                )
        _await_ready(running, port, logs)
        console.print(Text.assemble("Airflow is at ", (f"http://127.0.0.1:{port}", "bold")))
        passwords = credentials.get_passwords_file(prepared.home)
        console.print(
            f"Log in as {credentials.ADMIN_USER} with the password in {passwords}, which only this user can read."
        )
        console.print(f"Logs of its services: {logs}. Ctrl-C stops everything.")
        while True:
            _check_alive(running, logs)
            time.sleep(1)
    finally:
        # Print nothing before this: printing to a closed terminal or pipe raises, and the services would not stop.
        leaders = list(running.values())
        child_processes.stop_sessions(leaders[:1], leaders[1:])


def _await_ready(running: dict[str, subprocess.Popen[bytes]], port: int, logs: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while missing := _unhealthy(port):
        _check_alive(running, logs)
        if time.monotonic() > deadline:
            raise LakehouseError(
                f"Services of Airflow did not become healthy within {READY_SECONDS} s: {', '.join(sorted(missing))}. "
                f"See the logs in {logs}."
            )
        time.sleep(0.5)
    if not loopback.is_own_listener(port):
        raise LakehouseError(
            f"Another user of this machine also listens on port {port}. Choose another port, as in `make ui PORT=…`, "
            "and enter no password on that port."
        )
    if not _refuses_strangers(port):
        raise LakehouseError(
            "Airflow answers requests for any host, so a web page could reach it. The plugin that refuses such "
            "requests was not loaded. Run `uv sync --locked`, then start again. The reason is in "
            f"{logs / 'api-server.log'}."
        )


def _refuses_strangers(port: int) -> bool:
    """Return whether Airflow refuses requests for other hosts. Without the plugin for this, it does not refuse them."""
    request = Request(f"http://127.0.0.1:{port}/api/v2/version", headers={"Host": "stranger.invalid"})
    try:
        with loopback.open_url(request, timeout=_ANSWER_SECONDS):
            return False
    except HTTPError as refusal:
        return refusal.code == HTTPStatus.BAD_REQUEST
    except URLError:
        return False


def _unhealthy(port: int) -> set[str]:
    try:
        with loopback.open_url(f"http://127.0.0.1:{port}/api/v2/monitor/health", timeout=5) as answer:
            health = json.load(answer)
    except (URLError, OSError):
        return {"api-server"}
    return {name for name, state in health.items() if state["status"] != "healthy"}


def _check_alive(running: dict[str, subprocess.Popen[bytes]], logs: Path) -> None:
    for name, process in running.items():
        if process.poll() is not None:
            lines = (logs / f"{name}.log").read_text(errors="replace").splitlines()[-15:]
            raise LakehouseError(
                f"Airflow's {name} ended unexpectedly (exit code {process.returncode}). Its last lines:\n"
                + "\n".join(lines)
            )
