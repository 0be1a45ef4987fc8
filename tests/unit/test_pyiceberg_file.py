"""PyIceberg's configuration in the home folder has no effect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = "import synapse_lakehouse; from pyiceberg.utils.config import Config; print(Config().config.get('catalog'))"


@pytest.mark.parametrize("content", ["catalog: [", "catalog:\n  lake:\n    uri: http://example.org\n"])
def test_a_file_in_the_home_folder_is_not_read(tmp_path: Path, content: str) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text(content)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYICEBERG_")}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment | {"HOME": str(tmp_path)}, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stdout.strip()) == (0, "None"), result.stderr
