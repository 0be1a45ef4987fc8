"""A second user of the machine gets no data, no session and no code execution from the lakehouse's processes."""

import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import httpx
import psycopg
import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.support import runs
from tests.support.sockets import descendants, listening
from tests.support.strangers import Stranger, stranger

pytestmark = pytest.mark.heavy
CANARY = secrets.token_hex(16)
"""A secret key of the warehouse, as an operator sets it."""


@pytest.fixture(scope="module")
def other() -> Iterator[Stranger]:
    """Yield a second user."""
    with stranger() as created:
        yield created


@pytest.fixture
def lake(new_lake: Callable[..., Settings]) -> Settings:
    """Return a lake whose settings contain a secret."""
    return new_lake(lakehouse_catalog_properties={"s3.secret-access-key": CANARY})


def test_a_run_gives_nothing_to_another_user(lake: Settings, server: EmbeddedServer, other: Stranger) -> None:
    run = runs.start(lake, "--date", "2026-11-01")
    results_by_address: dict[tuple[IPv4Address | IPv6Address, int], list[str]] = {}
    secrets_of_run = {CANARY, server.password}
    try:
        while run.poll() is None:
            pids = descendants(run.pid)
            for address, port in listening(run.pid) - results_by_address.keys():
                results_by_address[address, port] = other.request("spark", str(address), port)
            assert not [pid for pid in pids if Path(f"/proc/{pid}").exists() and other.request("signal", pid)]
            exposing_files = {
                f"/proc/{pid}/{name}"
                for pid in pids
                for name in ("environ", "cmdline", "maps")
                if any(secret in (other.request("read", f"/proc/{pid}/{name}") or "") for secret in secrets_of_run)
            }
            assert exposing_files == set()
            time.sleep(0.5)
    finally:
        output, _ = run.communicate(timeout=1200)
    assert run.returncode == 0, output
    assert len(results_by_address) >= 3, "a driver has a port for RPC, for blocks and for Python"
    assert {address: results for address, results in results_by_address.items() if results} == {}
    assert {str(address) for address, _ in results_by_address} == {"127.0.0.1"}
    _require_no_secret_readable(lake, other, secrets_of_run)


def test_the_ui_gives_nothing_to_another_user(lake: Settings, server: EmbeddedServer, other: Stranger) -> None:
    ui = runs.start_ui(lake)
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+", runs.read_until(ui, r"http://127\.0\.0\.1:\d+"))
        assert address
        addresses = listening(ui.pid)
        assert {str(host) for host, _ in addresses} == {"127.0.0.1"}
        with httpx.Client(base_url=address[0], timeout=60) as client:
            _require_no_session(client)
            headers = {"Host": "attacker.example"}
            for path in ("/", "/auth/login/", "/auth/token", "/api/v2/dags", "/execution/health", "/api/v2/version"):
                assert client.get(path, headers=headers).status_code in (400, 421), path
        for host, port in addresses:
            assert other.request("spark", str(host), port) == []
        _require_no_secret_readable(lake, other, {CANARY, server.password})
    finally:
        ui.send_signal(signal.SIGINT)
        ui.communicate(timeout=120)


def _require_no_session(client: httpx.Client) -> None:
    for method, path in (
        ("GET", "/auth/token"), ("GET", "/auth/token/login"), ("GET", "/api/v2/dags"), ("GET", "/api/v2/connections"),
        ("GET", "/api/v2/dagRuns"), ("GET", "/ui/config"), ("GET", "/api/v2/config"), ("GET", "/execution/variables/x"),
    ):  # fmt: skip
        response = client.request(method, path)
        assert response.status_code in (401, 403, 404, 405), (path, response.status_code)
        assert "access_token" not in response.text
    for password in ("", "admin", "airflow"):
        login = client.post("/auth/token", json={"username": "admin", "password": password})
        assert login.status_code in (400, 401, 403, 422)
        assert "access_token" not in login.text
    assert "_token" not in client.cookies


def _require_no_secret_readable(lake: Settings, other: Stranger, secrets_of_run: set[str]) -> None:
    folders = [str(lake.lakehouse_home), lake.warehouse.removeprefix("file://")]
    readable = [path for folder in folders for path in other.request("walk", folder)]
    leaking = [
        path for path in readable if any(secret in (other.request("read", path) or "") for secret in secrets_of_run)
    ]
    assert leaking == []


def test_the_embedded_server_has_an_account_of_its_own(server: EmbeddedServer, other: Stranger) -> None:
    (pid,) = _postmasters(server)
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapAmb"], 16) == 0
    uid = int(status["Uid"].split()[0])
    account_pids = {
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and entry.exists() and entry.stat().st_uid == uid
    }
    programs = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in account_pids if Path(f"/proc/{pid}").exists()}
    assert programs == {"postgres"}
    names = {entry.partition("=")[0] for entry in Path(f"/proc/{pid}/environ").read_text().split("\0")}
    assert not {name for name in names if name.startswith(("SYNAPSE_", "LAKEHOUSE_", "AIRFLOW_", "AWS_"))}
    for password in ("", "postgres", "synapse"):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(f"postgresql://postgres:{password}@127.0.0.1:{server.port}/postgres")


def _postmasters(server: EmbeddedServer) -> set[str]:
    return {
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and b"postgres" in _cmdline(entry)[:200]
        and (IPv4Address("127.0.0.1"), server.port) in listening(int(entry.name))
        and b"-D" in _cmdline(entry)
    }


def _cmdline(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
