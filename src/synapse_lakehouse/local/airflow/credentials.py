"""Generate Airflow's keys and the login of its UI and API at the first use, in files that only this user can read."""

import base64
import json
import secrets
from pathlib import Path
from typing import Any, Final

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.local.private_file import write_private_file

ADMIN_USER: Final = "admin"
_FERNET: Final = "AIRFLOW__CORE__FERNET_KEY"


class CredentialsError(LakehouseError):
    """A credentials file is damaged. The message names the file."""


def get_passwords_file(airflow_home: Path) -> Path:
    """Return the path of the file with the passwords of Airflow's users, as JSON."""
    return airflow_home / "passwords.json"


def read_admin_password(airflow_home: Path) -> str:
    """Return the password of the administrator.

    :raises CredentialsError: when the file is damaged.
    """
    file = get_passwords_file(airflow_home)
    content = _read_json(file)
    if not isinstance(content.get(ADMIN_USER), str):
        raise CredentialsError(
            f"{file} has no password of {ADMIN_USER}. Delete the file. The next start generates a new password."
        )
    return str(content[ADMIN_USER])


def read_admin_login(airflow_home: Path) -> dict[str, str]:
    """Return name and password of the administrator, as Airflow's API takes them.

    :raises CredentialsError: when the file is damaged.
    """
    return {"username": ADMIN_USER, "password": read_admin_password(airflow_home)}


def ensure_credentials(airflow_home: Path) -> dict[str, str]:
    """Return Airflow's settings for its keys and its login. Create both files if they are absent.

    :raises CredentialsError: when a file is damaged.
    """
    airflow_home.mkdir(parents=True, exist_ok=True)
    passwords, keys = get_passwords_file(airflow_home), airflow_home / "keys.json"
    content = _read_json(keys) if keys.exists() else {}
    if not passwords.exists() or not content:
        # A new password also changes the signing keys, which ends earlier sessions. Stored connections stay readable.
        content = {
            _FERNET: content.get(_FERNET, base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()),
            "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
        }
        write_private_file(keys, json.dumps(content))
    if not passwords.exists():
        write_private_file(passwords, json.dumps({ADMIN_USER: secrets.token_urlsafe(24)}))
    read_admin_password(airflow_home)
    passwords.chmod(0o600)
    return {
        "AIRFLOW__CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN_USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        **content,
    }


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise CredentialsError(f"{file} is damaged: it is not a JSON object. Delete the file, and start again.")
    return content
