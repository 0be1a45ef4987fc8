"""Files of the command are readable by their owner only, and doctor reports others."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from synapse_lakehouse.cli import app
from synapse_lakehouse.cli.doctor import env_file_readers, machine
from synapse_lakehouse.cli.doctor.finding import FindingLevel
from synapse_lakehouse.config.settings import Settings


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a LAKEHOUSE_HOME that all users may enter. Pytest's own temporary folders can be private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder).resolve()


def test_the_command_sets_a_private_umask() -> None:
    previous_umask = os.umask(0o022)
    try:
        CliRunner().invoke(app, ["grants"])
        assert os.umask(0o022) == 0o077
    finally:
        os.umask(previous_umask)


def test_doctor_warns_of_folders_that_others_may_read(home: Path) -> None:
    settings = Settings(_env_file=None, lakehouse_home=home)
    (home / "data_docs").mkdir(mode=0o700)
    (home / "warehouse").mkdir(mode=0o755)
    (home / "warehouse").chmod(0o755)

    (finding,) = machine.check_privacy(settings)
    assert finding.level is FindingLevel.WARN
    assert finding.advice == f"chmod -R go-rwx {home / 'warehouse'}"

    home.chmod(0o700)
    assert [finding.level for finding in machine.check_privacy(settings)] == [FindingLevel.OK]
    home.chmod(0o711)
    (home / "warehouse").chmod(0o711)
    assert [finding.level for finding in machine.check_privacy(settings)] == [FindingLevel.OK]


@pytest.mark.parametrize(
    ("line", "contains_secret"),
    [
        ("SYNAPSE_DSN=postgresql://reader:sesame@db/synapse", True),
        ("synapse_dsn='host=db password=sesame'", True),
        ("SYNAPSE_DSN=postgresql://reader@db:5432/synapse", False),
        ("SYNAPSE_DSN=", False),
        ("LAKEHOUSE_ALERT_URLS=matrixs://sesame@example.org", True),
        ("AIRFLOW_ADMIN_PASSWORD=sesame", True),
        ("AWS_SECRET_ACCESS_KEY=sesame", True),
        ("SYNAPSE_SERVER_NAME=example.org", False),
    ],
)
def test_doctor_warns_of_secrets_in_a_file_that_others_may_read(
    home: Path, monkeypatch: pytest.MonkeyPatch, line: str, contains_secret: bool
) -> None:
    monkeypatch.chdir(home)
    file = home / ".env"
    assert list(env_file_readers.examine()) == []
    file.write_text(f"{line}\n")
    for mode, warns in ((0o644, True), (0o600, False)):
        file.chmod(mode)
        findings = list(env_file_readers.examine())
        assert [finding.level for finding in findings] == [FindingLevel.WARN] * (warns and contains_secret)
        assert "sesame" not in str(findings)
    file.chmod(0o644)
    home.chmod(0o700)
    assert list(env_file_readers.examine()) == []


def test_doctor_checks_the_file_of_a_homeserver(home: Path) -> None:
    file = home / "one.env"
    file.write_text("LAKEHOUSE_METRICS_TOKEN=sesame\n")
    file.chmod(0o644)
    (finding,) = env_file_readers.examine(file)
    assert finding.advice == f"chmod 600 {file}"
