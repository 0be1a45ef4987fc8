"""Airflow refuses requests with the name of another host."""

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError
from starlette.types import Message, Receive, Scope, Send

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.orchestration.trusted_hosts import TrustedHostsMiddleware


async def _serve(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})


def status(*hosts: str, kind: str = "http", method: str = "GET") -> int:
    """Return the status of the response to a request with ``hosts`` as its ``Host`` headers."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        messages.append(message)

    scope = {
        "type": kind, "method": method, "path": "/", "extensions": {"websocket.http.response": {}},
        "headers": [(b"host", host.encode("latin-1")) for host in hosts],
    }  # fmt: skip
    asyncio.run(TrustedHostsMiddleware(_serve)(scope, receive, send))
    return int(messages[0]["status"])


@pytest.fixture(autouse=True)
def _allowed_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEHOUSE_UI_HOSTS", "airflow-api-server Lake.example.org")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost:9000", "localhost", "LOCALHOST:1", "airflow-api-server:8080",
             "lake.example.org"]
)  # fmt: skip
def test_own_hosts_are_served(host: str) -> None:
    assert status(host) == 200


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "hosts",
    [["evil.example"], ["evil.example:8080"], ["127.0.0.1.evil.example"], ["localhost.evil.example:8080"], [""], [],
     ["127.0.0.1:8080@evil.example"], ["evil.example#127.0.0.1"], ["localhost:8080", "evil.example"], ["0.0.0.0:8080"],
     ["evil.example", "localhost:8080"], ["www.localhost"], ["127.1"], ["[::1]:8080"], ["localhost evil.example"]],
)  # fmt: skip
def test_other_hosts_are_refused(hosts: list[str], kind: str) -> None:
    assert status(*hosts, kind=kind) == 400


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_every_method_is_refused(method: str) -> None:
    assert status("evil.example", method=method) == 400


@pytest.mark.parametrize(
    "hosts", ["*", "http://lake.example.org", "lake.example.org:8080", "*.example.org", "a,b", "a/b"]
)
def test_invalid_host_names_are_refused(hosts: str) -> None:
    with pytest.raises(ValidationError, match="lakehouse_ui_hosts"):
        Settings(_env_file=None, lakehouse_ui_hosts=hosts)


def test_a_wrong_setting_serves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_UI_HOSTS", "*")
    with pytest.raises(ValidationError):
        TrustedHostsMiddleware(_serve)
