"""A server of the wheel comes up whatever killed its predecessors, and goes with its last user."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from synapse_lakehouse.embedded import postgres

USE = """
import signal, sys
from pathlib import Path
from synapse_lakehouse.embedded import postgres
# A shell's job in the background ignores it, and so would what the job starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
with postgres.running(Path(sys.argv[1])):
    pass
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete cluster that nobody uses."""
    data = tmp_path_factory.mktemp("home") / "postgres"
    with postgres.running(data):
        return data


def half_made(data: Path) -> Path:
    """A cluster whose initdb is killed at work, wherever it was being made."""
    for _ in range(20):
        user = subprocess.Popen([sys.executable, "-c", USE, data])
        deadline = time.monotonic() + 30
        while not (made := list(data.parent.glob("**/PG_VERSION"))) and time.monotonic() < deadline:
            time.sleep(0.002)
        user.send_signal(signal.SIGINT)
        if user.wait(30):
            return made[0].parent
        # On a busy machine it was done before it was told to stop.
        for one in data.parent.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
    raise AssertionError("initdb was done before it was told to stop, every time")


def test_a_first_use_that_is_interrupted_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    data = tmp_path / "postgres"
    tmp_path.chmod(0o700)
    half_made(data)

    assert tmp_path.stat().st_mode & 0o777 == (0o711 if os.geteuid() == 0 else 0o700)
    assert not data.exists()
    with postgres.running(data) as server:
        assert server.create_database("lake")
    assert {one.name for one in tmp_path.iterdir()} == {
        "postgres", "postgres.lock", "postgres.password", "postgres.start.lock"
    }  # fmt: skip


def test_a_server_that_does_not_start_is_explained_by_its_log_and_not_left_behind(made: Path) -> None:
    with pytest.raises(postgres.PostgresError, match=r"server\.log"), postgres.running(made, options=["port=none"]):
        pass
    assert not (made / "postmaster.pid").exists()


def test_a_server_that_does_not_answer_is_stopped_all_the_same(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "START_SECONDS", 5)
    monkeypatch.setattr(postgres, "_answers", lambda port: False)
    with pytest.raises(postgres.PostgresError, match=r"did not answer.*server\.log"), postgres.running(made):
        pass
    assert not (made / "postmaster.pid").exists()


def test_a_folder_that_was_never_finished_is_made_anew(made: Path) -> None:
    before = made.with_name("postgres.password").read_text()
    for database in (made / "base").glob("[45]"):
        (database / "PG_VERSION").unlink()

    with postgres.running(made) as server:
        assert "postgres" in server.databases()
    assert server.password != before
