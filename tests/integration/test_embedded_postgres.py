"""The embedded PostgreSQL starts after any crash, and stops with its last user."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from synapse_lakehouse.local.postgres import account, embedded_postgres
from tests.support.sockets import descendants

USE = """
import signal, sys
from pathlib import Path
from synapse_lakehouse.local.postgres import embedded_postgres
# Background jobs of a shell, and their child processes, ignore SIGINT by default.
signal.signal(signal.SIGINT, signal.default_int_handler)
with embedded_postgres.run_server(Path(sys.argv[1])):
    pass
"""


@pytest.fixture(scope="module")
def new_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a complete, unused cluster."""
    data = tmp_path_factory.mktemp("home") / "postgres"
    with embedded_postgres.run_server(data):
        return data


def interrupt_initdb(data: Path) -> Path:
    """Interrupt initdb, and return the folder of its incomplete cluster."""
    for _ in range(20):
        process = subprocess.Popen([sys.executable, "-c", USE, data])
        deadline = time.monotonic() + 30
        while not (created := list(data.parent.glob("**/PG_VERSION"))) and time.monotonic() < deadline:
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        if process.wait(30):
            return created[0].parent
        # On a busy machine, initdb ends before the signal.
        for item in data.parent.iterdir():
            shutil.rmtree(item) if item.is_dir() else item.unlink()
    raise AssertionError("initdb ended before the signal in every try")


def test_an_interrupted_first_start_leaves_nothing(tmp_path: Path) -> None:
    data = tmp_path / "postgres"
    tmp_path.chmod(0o700)
    interrupt_initdb(data)

    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert not data.exists()
    with embedded_postgres.run_server(data) as server:
        assert server.create_database("lake")
    assert {item.name for item in tmp_path.iterdir()} == {
        "postgres", "postgres.lock", "postgres.password", "postgres.start.lock"
    }  # fmt: skip


def test_a_failed_start_is_explained_and_leaves_nothing(new_cluster: Path) -> None:
    with (
        pytest.raises(embedded_postgres.EmbeddedPostgresError, match=r"server\.log"),
        embedded_postgres.run_server(new_cluster, options=["port=none"]),
    ):
        pass
    assert not (new_cluster / "postmaster.pid").exists()


def test_a_server_that_does_not_answer_is_stopped(new_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_postgres, "START_SECONDS", 5)
    monkeypatch.setattr(embedded_postgres, "_answers", lambda port: False)
    with (
        pytest.raises(embedded_postgres.EmbeddedPostgresError, match=r"did not answer.*server\.log"),
        embedded_postgres.run_server(new_cluster),
    ):
        pass
    assert not (new_cluster / "postmaster.pid").exists()


def test_an_incomplete_folder_is_recreated(new_cluster: Path) -> None:
    before = new_cluster.with_name("postgres.password").read_text()
    for database in (new_cluster / "base").glob("[45]"):
        (database / "PG_VERSION").unlink()

    with embedded_postgres.run_server(new_cluster) as server:
        assert "postgres" in server.databases()
    assert server.password != before


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_a_damaged_password_file_is_explained(new_cluster: Path, content: bytes | None) -> None:
    file = new_cluster.with_name("postgres.password")
    before = file.read_text()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    try:
        with (
            pytest.raises(embedded_postgres.EmbeddedPostgresError, match=r"postgres\.password contains no password"),
            embedded_postgres.run_server(new_cluster),
        ):
            pass
    finally:
        file.write_text(before)
        file.chmod(0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="without root, the server runs as the current user")
class TestAsRoot:
    """The server has an account of its own."""

    def test_it_has_no_capability_and_no_inherited_secret(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SYNAPSE_DSN", "sesame")
        monkeypatch.setenv("PGOPTIONS", "-c sesame=1")
        tmp_path.chmod(0o700)
        data = tmp_path / "postgres"
        with embedded_postgres.run_server(data):
            pid = int((data / "postmaster.pid").read_text().split()[0])
            processes = descendants(pid)
            assert len(processes) > 3
            for process in processes:
                try:
                    lines = Path(f"/proc/{process}/status").read_text().splitlines()
                except FileNotFoundError:
                    # A process, such as an autovacuum worker, has ended meanwhile.
                    continue
                status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
                assert {status[name].split()[0] for name in ("Uid", "Gid")} <= {
                    str(data.stat().st_uid),
                    str(data.stat().st_gid),
                }
                assert {int(status[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Amb")} == {0}
                assert status["NoNewPrivs"] == "1"
                assert status["Groups"].split() == []
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"sesame" not in environ
            assert {item.split(b"=")[0] for item in environ.split(b"\0") if item} <= {
                b"PATH", b"LC_ALL", b"TZ", b"PWD", b"OLDPWD", b"SHLVL", b"_", b"PG_GRANDPARENT_PID", b"PGSYSCONFDIR",
                b"PGLOCALEDIR", b"PGDATA",
            }  # fmt: skip
        assert pwd.getpwuid(data.stat().st_uid).pw_name == account.ACCOUNT_NAME
        assert data.stat().st_mode & 0o777 == 0o700
        assert tmp_path.stat().st_mode & 0o777 == 0o700

    def test_programs_in_a_closed_folder_are_copied(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> None:
        closed = tmp_path / "closed"
        package = embedded_postgres.BIN.parents[1]
        for part in (package.name, f"{package.name}.libs"):
            shutil.copytree(package.with_name(part), closed / part)
        closed.chmod(0o700)
        with TemporaryDirectory() as open_to_all:
            Path(open_to_all).chmod(0o755)
            monkeypatch.setattr(account, "COPIES", Path(open_to_all) / "new" / "copies")
            # Every command sets this umask.
            umask = os.umask(0o077)
            request.addfinalizer(lambda: os.umask(umask))
            monkeypatch.setattr(embedded_postgres, "BIN", closed / package.name / "pginstall" / "bin")
            for _ in range(2):
                with embedded_postgres.run_server(tmp_path / "postgres") as server:
                    assert "postgres" in server.databases()
            (copy,) = account.COPIES.iterdir()
            assert {path.stat().st_uid for path in copy.rglob("*")} == {0}
            assert not [path for path in copy.rglob("*") if path.stat().st_mode & 0o022 and not path.is_symlink()]

    def test_a_folder_of_an_earlier_version_is_taken_over(self, new_cluster: Path) -> None:
        with embedded_postgres.run_server(new_cluster) as server:
            server.create_database("lake")
        nobody = pwd.getpwnam("nobody")
        for path in (new_cluster, *new_cluster.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        with embedded_postgres.run_server(new_cluster) as server:
            assert "lake" in server.databases()
        assert {path.stat().st_uid for path in (new_cluster, *new_cluster.rglob("*"))} == {
            pwd.getpwnam(account.ACCOUNT_NAME).pw_uid
        }
