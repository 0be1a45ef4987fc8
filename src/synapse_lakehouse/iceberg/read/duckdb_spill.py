"""Create spill folders. Each DuckDB connection has one for rows that do not fit in memory.

DuckDB uses the same file names in every process. If two connections shared a folder, they would overwrite each other's
rows and crash. The folders are below LAKEHOUSE_HOME, because the system's folder for temporary files may be small.
"""

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from synapse_lakehouse.config.settings import Settings

_ABANDONED_SECONDS: Final = 24 * 3600


def create_spill_folder(settings: Settings) -> Path:
    """Return the path of a new spill folder, which DuckDB creates if needed; delete folders abandoned for a day.

    Only this user can read the folder, because rows contain messages.
    """
    parent = settings.lakehouse_home / "duckdb"
    # A user without write access can query as well, because most queries never spill.
    with suppress(OSError):
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in parent.iterdir():
            if time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
    return parent / uuid4().hex
