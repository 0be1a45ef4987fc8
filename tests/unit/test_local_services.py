"""Local services refuse contradictory settings and a home folder that they cannot use."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.airflow import prepare_airflow
from synapse_lakehouse.local.services import LocalServicesError, connect_services


def test_the_sample_does_not_replace_a_named_homeserver(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, lakehouse_home=tmp_path, synapse_server_name="example.org")
    with (
        pytest.raises(LocalServicesError, match=r"SYNAPSE_SERVER_NAME is example\.org, but SYNAPSE_DSN"),
        connect_services(settings),
    ):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("start", [prepare_airflow.prepare_airflow, connect_services])
def test_a_home_that_cannot_be_created_is_explained(
    start: Callable[[Settings], AbstractContextManager[object]], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    settings = Settings(_env_file=None, lakehouse_home=tmp_path / "file" / "home")
    with pytest.raises(LocalServicesError, match=r"file/home cannot be created \(Not a directory\)"), start(settings):
        pass


def test_a_home_that_cannot_be_written_to_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test replaces os.access, because root may write to any folder of a writable file system."""
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path and mode & os.W_OK))
    with (
        pytest.raises(LocalServicesError, match="cannot be written to"),
        connect_services(Settings(lakehouse_home=tmp_path)),
    ):
        pass
    assert not list(tmp_path.iterdir())
