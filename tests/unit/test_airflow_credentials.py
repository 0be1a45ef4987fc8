"""Airflow's credentials are generated once, and are complete and private before Airflow reads them."""

import json
import os
from pathlib import Path

import pytest

from synapse_lakehouse.local.airflow import credentials

KEYS = {"AIRFLOW__CORE__FERNET_KEY", "AIRFLOW__API__SECRET_KEY", "AIRFLOW__API_AUTH__JWT_SECRET"}


@pytest.fixture
def open_umask() -> object:
    previous_umask = os.umask(0)
    yield
    os.umask(previous_umask)


def test_both_files_are_private_for_any_umask(tmp_path: Path, open_umask: None) -> None:
    credentials.ensure_credentials(tmp_path / "airflow")

    files = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "airflow").iterdir()}
    assert files == {"passwords.json": 0o600, "keys.json": 0o600}


def test_airflow_reads_the_password_of_the_file(tmp_path: Path) -> None:
    environment = credentials.ensure_credentials(tmp_path)

    passwords = Path(environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    (name, role) = environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"].split(":")
    assert json.loads(passwords.read_text()) == {name: credentials.read_admin_password(tmp_path)}
    assert role == "admin"
    assert environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] == "False"
    assert len(credentials.read_admin_password(tmp_path)) >= 32
    assert credentials.read_admin_password(tmp_path) not in environment.values()


def test_existing_credentials_are_unchanged(tmp_path: Path) -> None:
    before = credentials.ensure_credentials(tmp_path), credentials.read_admin_password(tmp_path)

    assert (credentials.ensure_credentials(tmp_path), credentials.read_admin_password(tmp_path)) == before


def test_an_exposed_password_file_becomes_private(tmp_path: Path) -> None:
    credentials.ensure_credentials(tmp_path)
    credentials.get_passwords_file(tmp_path).chmod(0o644)

    credentials.ensure_credentials(tmp_path)

    assert credentials.get_passwords_file(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"{}", b'{"admin": null}'])
def test_a_damaged_password_file_is_named(tmp_path: Path, content: bytes) -> None:
    credentials.ensure_credentials(tmp_path)
    credentials.get_passwords_file(tmp_path).write_bytes(content)
    with pytest.raises(credentials.CredentialsError, match=r"passwords\.json.*Delete the file"):
        credentials.ensure_credentials(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]"])
def test_a_damaged_key_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "keys.json").write_bytes(content)
    with pytest.raises(credentials.CredentialsError, match=r"keys\.json.*Delete the file"):
        credentials.ensure_credentials(tmp_path)


def test_a_new_password_ends_sessions(tmp_path: Path) -> None:
    before, password = credentials.ensure_credentials(tmp_path), credentials.read_admin_password(tmp_path)
    credentials.get_passwords_file(tmp_path).unlink()

    after = credentials.ensure_credentials(tmp_path)

    assert credentials.read_admin_password(tmp_path) != password
    assert {name for name in KEYS if after[name] == before[name]} == {"AIRFLOW__CORE__FERNET_KEY"}
