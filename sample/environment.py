"""Install Synapse and other wheels with uv, each in its own virtual environment."""

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
    """Return the Python of the environment ``venv`` with Synapse ``version``. Install Synapse if it is absent.

    :raises ServiceError: if uv is missing or the installation fails.
    """
    return python_with("matrix-synapse", version, venv, extras="[postgres,redis]")


def compressor_python() -> Path:
    """Return the Python of an environment with the compressor of Synapse's developers. Install it if it is absent.

    :raises ServiceError: if uv is missing or the installation fails.
    """
    # The wheel of 0.1.4 exports no function.
    return python_with("synapse-auto-compressor", "0.1.2", PROJECT / ".lakehouse" / "reference-compressor-venv")


def python_with(
    package: str, version: str, venv: Path, *, extras: str = "", options: Sequence[str | Path] = ()
) -> Path:
    """Return the Python of the environment ``venv`` with ``version`` of ``package``. Install it if it is absent.

    :param options: options of ``uv pip install``.
    :raises ServiceError: if uv is missing or the installation fails.
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
    program = f"from importlib.metadata import version; print(version({package!r}))"
    result = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    return result.stdout.strip() or None


def _uv() -> str:
    path = shutil.which("uv") or shutil.which("uv", path=PROJECT / ".tools" / "uv" / "bin")
    if not path:
        raise ServiceError("uv is not installed: run `make run` once, or install it from https://docs.astral.sh/uv/")
    return path
