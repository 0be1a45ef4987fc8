"""The sample's lake has the same content as the lake that an earlier version of the project created."""

import os
import subprocess
from pathlib import Path

import pytest

from synapse_lakehouse.config.settings import Settings
from tests.conftest import BIN
from tests.upgrade.content import DATE, read_content, read_recorded_content


@pytest.mark.heavy
def test_the_sample_s_lake_has_the_recorded_content(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SYNAPSE_", "LAKEHOUSE_"))}
    subprocess.run(
        [BIN / "lakehouse", "run", "--date", DATE],
        env=environment | {"LAKEHOUSE_HOME": str(home)},
        cwd=tmp_path,
        check=True,
        timeout=1200,
    )
    earlier = read_recorded_content()
    run_columns = {name: table["run_columns"] for name, table in earlier.items()}
    assert read_content(Settings(_env_file=None, lakehouse_home=home), run_columns) == earlier
