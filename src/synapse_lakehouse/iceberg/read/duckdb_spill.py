"""Where DuckDB keeps what does not fit in memory: a folder for each connection, which goes with it.

DuckDB gives its files the same names in every process, so connections that share a folder overwrite each other's rows,
and crash. The folders are under LAKEHOUSE_HOME, as the machine's folder for temporary files may be a small one.
"""

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from synapse_lakehouse.config.settings import Settings

_LEFT_SECONDS: Final = 24 * 3600


def create_spill_folder(settings: Settings) -> Path:
    """A folder that nobody else has; DuckDB makes it when it needs it. What processes killed a day ago left is deleted.

    Nobody but this user can read what is in it, as rows hold messages.
    """
    parent = settings.lakehouse_home / "duckdb"
    # Who may only read the lake asks all the same: most answers need no folder.
    with suppress(OSError):
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in parent.iterdir():
            if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    return parent / uuid4().hex
