"""Several homeservers of one installation share an overview; each has its own lake, lease and Airflow DAG."""

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.lease.lease import Lease
from synapse_lakehouse.report.page_location import read_page_level
from tests.conftest import BIN
from tests.support.homeserver_files import write_homeserver, write_lake
from tests.support.report_lake import TEXTS, open_report_lake, publish


def lakehouse(folder: Path, home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of an installation with the homeservers in ``folder``."""
    installation = {"LAKEHOUSE_HOMESERVERS": str(folder), "LAKEHOUSE_HOME": str(home), "COLUMNS": "120"}
    return subprocess.run(
        [BIN / "lakehouse", *arguments], env=os.environ | installation | variables, cwd=folder, text=True,
        capture_output=True, check=False,
    )  # fmt: skip


def test_the_overview_shows_every_homeserver(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    for name in ("one", "two"):
        settings = new_lake(synapse_server_name=f"{name}.example", synapse_dsn="postgresql://r@127.0.0.1:1/none")
        with open_report_lake(settings) as catalog:
            publish(catalog, 1, TEXTS)
        write_lake(tmp_path, name, settings)
    write_homeserver(tmp_path, "wrong", synapse_dsn="postgresql://r@127.0.0.1:1/none")
    (tmp_path / "copy.env").write_bytes((tmp_path / "one.env").read_bytes())
    (tmp_path / "Two.env").touch()
    result = lakehouse(tmp_path, tmp_path, "homeservers", "--format", "json", LAKEHOUSE_HOMESERVER="two")
    assert result.returncode == 0, result.stderr
    rows = {row["homeserver"]: row for row in json.loads(result.stdout)}
    (tmp_path / "copy.env").unlink()
    assert [(name, row["release"]) for name, row in rows.items()] == [
        ("copy", None), ("one", None), ("two", 1), ("wrong", None), ("Two.env", None),
    ]  # fmt: skip
    assert rows["two"]["server_name"] == "two.example"
    assert {row["state"] for name, row in rows.items() if name != "two"} == {"warning"}
    assert "wrong.env does not set" in rows["wrong"]["headline"]

    result = lakehouse(tmp_path, tmp_path, "--homeserver", "two", "report")
    assert result.returncode == 0, result.stderr
    level = read_page_level(tmp_path / "homeservers" / "two")
    result = lakehouse(tmp_path, tmp_path, "homeservers", "--format", "json")
    (two,) = [row for row in json.loads(result.stdout) if row["homeserver"] == "two"]
    assert level in ("warning", "serious")
    assert two["state"] in (level, "serious")

    result = lakehouse(tmp_path, tmp_path, "--homeserver", "two", "releases", "--format", "json")
    assert [row["release"] for row in json.loads(result.stdout)] == [1]
    for arguments in (["releases"], ["--homeserver", "three", "releases"], ["--homeserver", "wrong", "releases"]):
        assert lakehouse(tmp_path, tmp_path, *arguments).returncode == 1


@pytest.mark.heavy
def test_each_homeserver_publishes_its_own_release(
    new_lake: Callable[..., Settings], home: Path, sample_dsn: str, source_copy: str, tmp_path: Path
) -> None:
    with psycopg.connect(source_copy) as source:
        source.execute(
            "delete from receipts_linearized where stream_id = (select min(stream_id) from receipts_linearized)"
        )
    lakes = {"one": new_lake(synapse_dsn=sample_dsn), "two": new_lake(synapse_dsn=source_copy)}
    with ExitStack() as stack:
        for name, settings in lakes.items():
            write_lake(tmp_path, name, settings)
            result = lakehouse(tmp_path, home, "--homeserver", name, "run", "--date", "2026-11-20")
            assert result.returncode == 0, result.stdout + result.stderr
            # The next homeserver does not wait for the lease of this homeserver.
            catalog = stack.enter_context(closing(open_catalog(settings)))
            Lease(catalog, "another run", "another_branch", seconds=3600).acquire()
    count = "select count(*) as n from bronze.receipts_linearized"
    one, two = (
        json.loads(lakehouse(tmp_path, home, "--homeserver", name, "query", count, "--format", "json").stdout)[0]["n"]
        for name in ("one", "two")
    )
    assert one == two + 1
    overview = json.loads(lakehouse(tmp_path, home, "homeservers", "--format", "json").stdout)
    assert [(row["homeserver"], row["release"]) for row in overview] == [("one", 1), ("two", 1)]
    for name in ("one", "two"):
        assert (home / "homeservers" / name / "report" / "index.html").is_file()
        assert (home / "homeservers" / name / "data_docs" / "index.html").is_file()
