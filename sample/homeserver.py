"""A real Synapse on loopback: PostgreSQL, Redis, main process, two event persisters and a stream worker."""

import hashlib
import hmac
import json
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Unpack

import httpx

from sample import configuration
from sample.client import ADMIN, V3, Client, Connection, Json, Options
from sample.configuration import EVENT_PERSISTERS, MAIN, STREAM_WORKER
from sample.environment import synapse_python
from sample.processes import free_ports, start_process, wait_until
from sample.redis import redis
from synapse_lakehouse.local.postgres import embedded_postgres

SERVER_NAME = "synapse.example"
DATABASE = "synapse"
LOOPBACK = Path(__file__).with_name("loopback.py")


@dataclass(frozen=True)
class Synapse:
    """A running homeserver.

    :ivar server_name: its Matrix name, as in user IDs.
    :ivar dsn: libpq URI of its database.
    :ivar config_path: its homeserver.yaml (with ``stream_writers`` and ``instance_map``).
    :ivar urls: process name → base URL of its client API. Two processes that send events at the same time fork rooms.
    :ivar processes: process name → process ID.
    :ivar redis_port: port of its Redis on 127.0.0.1.
    """

    server_name: str
    dsn: str = field(repr=False)
    config_path: Path
    urls: dict[str, str]
    processes: dict[str, int]
    redis_port: int
    connection: Connection = field(repr=False)
    secret: str = field(repr=False)

    @property
    def url(self) -> str:
        """Base URL of the main process."""
        return self.urls[MAIN]

    @property
    def event_persisters(self) -> tuple[str, ...]:
        """Names of the processes that write the events stream."""
        return tuple(configuration.event_persisters(self.urls)) or (MAIN,)

    def user_id(self, localpart: str) -> str:
        """Return the full user ID of ``localpart``."""
        return f"@{localpart}:{self.server_name}"

    def register(self, localpart: str, *, admin: bool = False, displayname: str | None = None) -> Client:
        """Register a user with the shared secret; return the logged-in client."""
        path = f"{ADMIN}/v1/register"
        nonce = self.connection.request("GET", path)["nonce"]
        password = secrets.token_urlsafe(12)
        signed = b"\0".join(text.encode() for text in (nonce, localpart, password, "admin" if admin else "notadmin"))
        body = {
            "nonce": nonce,
            "username": localpart,
            "password": password,
            "admin": admin,
            "mac": hmac.new(self.secret.encode(), signed, hashlib.sha1).hexdigest(),
        }
        if displayname is not None:
            body["displayname"] = displayname
        response = self.connection.request("POST", path, body)
        return Client(self.connection, response["user_id"], response["access_token"], response["device_id"], password)

    def register_guest(self) -> Client:
        """Register a guest; return the logged-in client."""
        response = self.connection.request("POST", f"{V3}/register", {}, params={"kind": "guest"})
        return Client(self.connection, response["user_id"], response["access_token"], response["device_id"])

    def register_bridged(self, name: str) -> Client:
        """Register a user of the application service. It may send events with ``params={"ts": …}``."""
        token = configuration.application_service_token(self.secret)
        body = {"type": "m.login.application_service", "username": f"bridged_{name}", "inhibit_login": True}
        response = self.connection.request("POST", f"{V3}/register", body, token=token)
        return BridgedClient(self.connection, response["user_id"], token)

    def login(self, client: Client, device_id: str, display_name: str) -> Client:
        """Log in the user of ``client`` on another device; return the client of that device."""
        body = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": client.user_id},
            "password": client.password,
            "device_id": device_id,
            "initial_device_display_name": display_name,
        }
        response = self.connection.request("POST", f"{V3}/login", body)
        return Client(self.connection, client.user_id, response["access_token"], device_id, client.password)


class BridgedClient(Client):
    """A user of the application service, which sends the user's requests."""

    def call(self, method: str, path: str, json: object = None, **options: Unpack[Options]) -> Json:
        """Send a request of the application service as this user."""
        options["params"] = {**options.get("params", {}), "user_id": self.user_id}
        return super().call(method, path, json, **options)


@contextmanager
def homeserver(
    workdir: Path,
    *,
    server_name: str = SERVER_NAME,
    dsn: str | None = None,
    state_dsn: str | None = None,
    workers: bool = True,
    event_persisters: Sequence[str] = EVENT_PERSISTERS,
    peers: Mapping[str, int] | None = None,
    python: Path | None = None,
) -> Iterator[Synapse]:
    """Run a Synapse until the context ends. All ports are on 127.0.0.1.

    :param workdir: folder for configuration, logs and media; without ``dsn`` also for PostgreSQL's data.
    :param dsn: an existing database in C locale; by default a database of an embedded server.
    :param state_dsn: a second database for the tables of room state.
    :param workers: also run event persisters, a stream worker and Redis.
    :param event_persisters: names of the event persisters.
    :param peers: server name → TLS port of the homeservers of this federation, including this homeserver. Other host
        names do not resolve. By default, the homeserver has no peers.
    :param python: the Python of a release of Synapse; by default of the newest release.
    :raises ServiceError: if a part cannot be installed or started. All started parts are stopped.
    :raises EmbeddedPostgresError: if the embedded PostgreSQL cannot be started.
    """
    workdir = workdir.absolute()
    logs = workdir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    python = python or synapse_python()
    with ExitStack() as stack:
        dsn = dsn or _start_database(stack, workdir)
        names = (MAIN, *event_persisters, STREAM_WORKER) if workers else (MAIN,)
        redis_port = stack.enter_context(redis(workdir, logs / "redis.log")) if workers else 0
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        peers = peers or {server_name: free_ports(1)[0]}
        secret = secrets.token_urlsafe(24)
        databases, streams = configuration.describe_databases(dsn, state_dsn), read_stream_writers(python)
        files = configuration.write(
            workdir, server_name, databases, ports, redis_port, peers[server_name], secret, streams
        )
        urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        processes = _start(stack, workdir, [python, "-P", LOOPBACK], files, urls, peers)
        connection = Connection(urls, MAIN, STREAM_WORKER if workers else MAIN)
        stack.callback(connection.close)
        yield Synapse(server_name, dsn, workdir / "homeserver.yaml", urls, processes, redis_port, connection, secret)


def _start_database(stack: ExitStack, workdir: Path) -> str:
    # The data need not survive a crash.
    server = stack.enter_context(
        embedded_postgres.run_server(workdir / "postgres", options=["fsync=off", "synchronous_commit=off"])
    )
    server.create_database(DATABASE)
    return server.dsn(DATABASE)


def _start(
    stack: ExitStack,
    workdir: Path,
    launcher: Sequence[str | Path],
    files: Mapping[str, list[Path]],
    urls: Mapping[str, str],
    peers: Mapping[str, int],
) -> dict[str, int]:
    """Start the main process, which prepares the database, and then all workers at once; return the process IDs."""
    pids: dict[str, int] = {}
    environment = {"SYNAPSE_PEERS": json.dumps(dict(peers))}
    for names in ((MAIN,), sorted(urls.keys() - {MAIN})):
        running = {}
        for name in names:
            app = "synapse.app.homeserver" if name == MAIN else "synapse.app.generic_worker"
            options = [part for path in files[name] for part in ("--config-path", str(path))]
            log = workdir / "logs" / f"{name}.out"
            command = [*launcher, app, *options]
            running[name] = stack.enter_context(start_process(f"Synapse's {name}", command, log, workdir, environment))
        for name, process in running.items():
            log = workdir / "logs" / f"{name}.out"
            wait_until(partial(_is_healthy, urls[name]), process, f"Synapse's {name}", log)
            pids[name] = process.pid
    return pids


def read_stream_writers(python: Path) -> list[str]:
    """Return the streams whose writers can be configured in the release. Synapse refuses other streams."""
    program = (
        "import attr, json; from synapse.config.workers import WriterLocations;"
        " print(json.dumps([field.name for field in attr.fields(WriterLocations)]))"
    )
    output = subprocess.run([python, "-P", "-c", program], capture_output=True, check=True).stdout
    streams: list[str] = json.loads(output)
    return streams


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False
