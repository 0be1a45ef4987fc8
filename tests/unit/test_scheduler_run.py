"""``lakehouse run`` beside ``make ui`` logs in to this Airflow and to no other server."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from synapse_lakehouse.cli.runs import scheduler_run
from synapse_lakehouse.local import loopback
from synapse_lakehouse.local.postgres.embedded_postgres import find_free_port

CREDENTIAL = {"username": "admin", "password": "generated"}
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class FakeAirflow(BaseHTTPRequestHandler):
    """The part of Airflow's API that a run uses. Only the health check and the login need no session."""

    def do_GET(self) -> None:
        if self.path == "/api/v2/monitor/health":
            self.reply(200, {})
        elif self.headers["Authorization"] == "Bearer session":
            self.reply(200, {"is_paused": False})
        else:
            self.reply(401, {"detail": "Not authenticated"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/auth/token":
            is_valid = body == CREDENTIAL
            self.reply(
                201 if is_valid else 401, {"access_token": "session"} if is_valid else {"detail": "Invalid credentials"}
            )
        elif self.headers["Authorization"] == "Bearer session":
            self.reply(200, {"dag_run_id": f"manual__{body['data_interval_end']}"})
        else:
            self.reply(401, {"detail": "Not authenticated"})

    def reply(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of a fake Airflow. The environment names a proxy that does not exist."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{find_free_port()}")
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeAirflow) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_run_is_triggered_after_a_login(address: str) -> None:
    run = scheduler_run.trigger_run(address, "lakehouse", CREDENTIAL, NOON, NOON, NOON)
    assert run.run_id == f"manual__{NOON.isoformat()}"


def test_no_password_is_sent_to_another_user(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(scheduler_run.SchedulerError, match="Another user of this machine"):
        scheduler_run.trigger_run(address, "lakehouse", CREDENTIAL, NOON, NOON, NOON)


def test_only_a_listener_of_this_user_is_ours(address: str) -> None:
    port = int(address.rpartition(":")[2])
    assert loopback.is_own_listener(port)
    assert not loopback.is_own_listener(find_free_port())


def test_a_wrong_password_is_refused_and_not_quoted(address: str) -> None:
    with pytest.raises(scheduler_run.SchedulerError, match=r"401.*Invalid credentials") as error_info:
        scheduler_run.trigger_run(address, "lakehouse", CREDENTIAL | {"password": "other-word"}, NOON, NOON, NOON)
    assert "other-word" not in str(error_info.value)
