"""Check that other users of this machine cannot read secrets in ``.env`` and in the files of homeservers."""

import grp
import os
import pwd
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.config.env_file import ENV_FILE, read_env_file
from synapse_lakehouse.config.settings import Settings

_ADDRESSES: Final = {
    "synapse_dsn",
    "synapse_state_dsn",
    "synapse_write_dsn",
    "lakehouse_catalog_uri",
    "lakehouse_redis_url",
}
"""Settings that are secret only if they contain a password."""
_PASSWORD: Final = re.compile(r"//[^/?]*:[^/?]*@|password", re.IGNORECASE)
_SECRETS_OF_OTHERS: Final = ("password", "secret", "token", "access_key")


def examine(file: Path = ENV_FILE) -> Findings:
    """Check a file of settings; by default ``.env`` in the current folder."""
    path = file.absolute()
    secrets = [name for name, value in read_env_file(path).items() if value and _is_secret(name.lower(), value)]
    if secrets and (readers := _other_readers(path)):
        message = f"{readers} can read {path}, which contains {' and '.join(secrets)}."
        # With Docker Compose, the owner is often another user than that of Airflow.
        owner = "" if path.stat().st_uid == os.getuid() else f"chown {os.getuid()} {path}; "
        yield DoctorFinding(FindingLevel.WARN, "privacy", message, f"{owner}chmod 600 {path}")


def _is_secret(name: str, value: str) -> bool:
    if name in _ADDRESSES:
        return bool(_PASSWORD.search(value))
    field = Settings.model_fields.get(name)
    return not field.repr if field else name.endswith(_SECRETS_OF_OTHERS)


def _other_readers(file: Path) -> str:
    """Describe the other users that can read a file; empty if only its owner and root can."""
    status = file.resolve().stat()
    if not all(folder.stat().st_mode & stat.S_IXOTH for folder in file.resolve().parents):
        return ""
    if status.st_mode & stat.S_IROTH:
        return "Every user of this machine"
    with suppress(KeyError):
        group, owner = grp.getgrgid(status.st_gid), pwd.getpwuid(status.st_uid)
        members = {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == group.gr_gid)}
        if status.st_mode & stat.S_IRGRP and members - {owner.pw_name, "root"}:
            return f"The group {group.gr_name}"
    return ""
