"""The doctor and a failed copy name the setting with which a server removes row versions from open snapshots."""

from pathlib import Path

import psycopg

from synapse_lakehouse.cli.doctor.finding import FindingLevel
from synapse_lakehouse.cli.doctor.source import check_snapshot_age
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer, run_server
from synapse_lakehouse.postgres.errors import ReadError


def test_the_doctor_names_the_setting(tmp_path: Path) -> None:
    with (
        run_server(tmp_path / "postgres", options=["old_snapshot_threshold=1h"]) as server,
        psycopg.connect(server.dsn()) as connection,
    ):
        (finding,) = check_snapshot_age(connection)
        assert finding.level is FindingLevel.WARN
        assert "old_snapshot_threshold is 1h" in finding.message


def test_the_default_is_no_finding(server: EmbeddedServer) -> None:
    with psycopg.connect(server.dsn()) as connection:
        assert list(check_snapshot_age(connection)) == []


def test_the_failed_copy_names_the_setting() -> None:
    assert "old_snapshot_threshold" in str(ReadError(psycopg.errors.SnapshotTooOld("snapshot too old")))
    assert "old_snapshot_threshold" not in str(ReadError(psycopg.errors.UndefinedTable("no such table")))
