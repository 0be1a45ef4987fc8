"""With a full warehouse disk, the run stops with a clear message and publishes nothing."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from tests.conftest import BIN, environment

# The disk has space for the empty tables, but not for the sample's rows.
SMALL = "1536k"
# Without root, mounts need a user namespace.
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


@pytest.mark.heavy
def test_a_full_disk_is_named_and_nothing_is_published(new_lake: Callable[..., Settings]) -> None:
    settings = new_lake()
    warehouse = Path(settings.warehouse.removeprefix("file://"))
    warehouse.mkdir()
    mount_and_run = 'mount -t tmpfs -o size="$1" none "$2" && exec "$3" run'
    result = subprocess.run(
        [*UNSHARE, "sh", "-c", mount_and_run, "sh", SMALL, warehouse, BIN / "lakehouse"],
        env=environment(settings), cwd=settings.lakehouse_home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert "disk is full" in result.stdout + result.stderr
    assert "No release was published" in result.stdout + result.stderr
    # The error is explained at once, without a retry, which would fail again.
    log = max((settings.lakehouse_home / "logs").glob("run_*.log")).read_text()
    assert log.count("Spark-Submit cmd") == 1
    assert "the lake lease could not be released" in log
    # The warehouse disappeared with its mount, but the catalog shows that there is no release.
    assert Path(list_catalog_entries(settings)["audit.releases"].location).name.startswith("00000-")
