"""Compiled machine code is cached in the first writable folder; without one, functions are compiled each time."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from synapse_lakehouse import numba_jit

READ_ONLY = """
set -e
mount --bind "$1" "$1"
mount -o remount,ro,bind "$1"
! touch "$1/written" 2>/dev/null
exec "$2" -c 'from synapse_lakehouse.compressor.algorithm import deltas; from synapse_lakehouse import numba_jit
print(numba_jit.find_cache_folder())'
"""


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse new folders beside the sources."""
    real_mkdir, sources = Path.mkdir, Path(numba_jit.__file__).parent

    def mkdir(path: Path, *arguments: Any, **options: Any) -> None:
        if path.is_relative_to(sources):
            raise OSError(errno.EROFS, "Read-only file system")
        real_mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.delenv("LAKEHOUSE_HOME", raising=False)


def test_the_cache_is_beside_the_sources() -> None:
    folder = numba_jit.find_cache_folder()
    assert folder
    assert folder.is_relative_to(Path(numba_jit.__file__).parent)


def test_the_cache_of_read_only_sources_is_in_the_home(
    read_only: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    folder = numba_jit.find_cache_folder()
    assert folder
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o077 == 0


def test_without_a_folder_functions_are_compiled_each_time(read_only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert numba_jit.find_cache_folder() is None
    monkeypatch.setattr(numba_jit, "_CACHE", None)
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    monkeypatch.setenv("HOME", "/nonexistent")

    assert numba_jit.cached_njit(lambda number: number + 1)(1) == 2


def test_an_unknown_home_folder_has_no_cache(read_only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", "~nobody-of-this-name/lake")
    assert numba_jit.find_cache_folder() is None


def test_a_read_only_checkout_is_usable(tmp_path: Path) -> None:
    sources = Path(numba_jit.__file__).parent
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(sources), sys.executable]
    if subprocess.run([*command[:3], "true"], capture_output=True, check=False).returncode:
        command[1:1] = ["--user", "--map-root-user"]
    homes = {"HOME": "/nonexistent", "LAKEHOUSE_HOME": str(tmp_path)}
    for home, expected in ((tmp_path, "compiled-"), (Path("/proc/none"), "None")):
        environment = os.environ | homes | {"LAKEHOUSE_HOME": str(home)}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert expected in result.stdout
