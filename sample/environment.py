"""Virtual environments apart from the project's: Synapse's, and those of other released wheels, installed by uv."""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sample.processes import ServiceError, run

VERSION = "1.163.2"
PROJECT = Path(__file__).resolve().parent.parent
VENV = PROJECT / ".lakehouse" / "synapse-venv"


def synapse_python(venv: Path = VENV, version: str = VERSION) -> Path:
    """Return the Python of the environment ``venv`` with Synapse ``version``; install Synapse if absent.

    :raises ServiceError: when uv is missing or the installation fails.
    """
    return python_with("matrix-synapse", version, venv, extras="[postgres,redis]")


def compressor_python() -> Path:
    """Python of an environment with the compressor that Synapse's developers give out; installs it if need be.

    :raises ServiceError: as above.
    """
    # 0.1.4's wheel exposes no function to call.
    return python_with("synapse-auto-compressor", "0.1.2", PROJECT / ".lakehouse" / "reference-compressor-venv")


def python_with(
    package: str, version: str, venv: Path, *, extras: str = "", options: Sequence[str | Path] = ()
) -> Path:
    """Return the Python of the environment ``venv`` with ``version`` of ``package``; install it if absent.

    :param options: of ``uv pip install``.
    :raises ServiceError: when uv is missing or the installation fails.
    """
    venv = venv.absolute()
    python = venv / "bin" / "python"
    venv.parent.mkdir(parents=True, exist_ok=True)
    with venv.with_name(venv.name + ".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _installed_version(python, package) != version:
            uv = _uv()
            run([uv, "venv", "--clear", "--python", sys.executable, venv], f"Creating {venv}")
            requirement = f"{package}{extras}=={version}"
            run([uv, "pip", "install", "--python", python, *options, requirement], f"Installing {requirement}")
    return python


def _installed_version(python: Path, package: str) -> str | None:
    if not python.exists():
        return None
    question = f"from importlib.metadata import version; print(version({package!r}))"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def _uv() -> str:
    actual = shutil.which("uv") or shutil.which("uv", path=PROJECT / ".tools" / "uv" / "bin")
    if not actual:
        raise ServiceError("uv is not installed: run `make run` once, or install it from https://docs.astral.sh/uv/")
    return actual
