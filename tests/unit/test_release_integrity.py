"""``lakehouse doctor`` counts and lists the findings of the level that it prints."""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli.doctor import release_integrity
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader

NOW = datetime(2026, 11, 18, tzinfo=UTC)
RELEASE = Release(1, "run", NOW, NOW, "branch", "tag", "here", {"gold.state_integrity": 1}, {}, {}, 1, 0, NOW, (), NOW)


def examine(monkeypatch: pytest.MonkeyPatch, folder: Path, *severities: str) -> list[DoctorFinding]:
    """The findings of a release in which one check has findings of these severities."""
    monkeypatch.setattr(duckdb_reader, "list_releases", lambda *_: [RELEASE])
    monkeypatch.setattr(duckdb_reader, "create_views", lambda *_: None)
    connection = duckdb.connect()
    connection.execute("create schema gold")
    columns = "check_name text, severity text, room_id text, subject text, expected text, found text"
    connection.execute(f"create table gold.state_integrity ({columns})")
    for number, severity in enumerate(severities):
        row = ["event_missing", severity, "!r", f"${number}", "a row", "none"]
        connection.execute("insert into gold.state_integrity values (?, ?, ?, ?, ?, ?)", row)
    return list(release_integrity.examine(connection, Settings(_env_file=None, lakehouse_home=folder)))


def test_findings_for_information_are_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (finding,) = examine(monkeypatch, tmp_path, "info", "fail", "warn", "info")
    assert finding.level is FindingLevel.FAIL
    assert finding.message.startswith("2 ")
    assert [f"${number}" in finding.message for number in range(4)] == [False, True, True, False]
    assert "…" not in finding.message


def test_findings_for_information_are_counted_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    finding, sound = examine(monkeypatch, tmp_path, *["info"] * 5)
    assert finding.level is sound.level is FindingLevel.OK
    assert finding.message.startswith("5 ")
    assert "…" in finding.message
