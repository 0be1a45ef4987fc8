"""Check the free disk space before a room is compressed."""

import os
import shutil
from pathlib import Path
from typing import Final

from synapse_lakehouse.compressor.algorithm.plan_room import RoomPlan
from synapse_lakehouse.compressor.errors import RoomSkippedError
from synapse_lakehouse.postgres.connection import Connection

_MB: Final = 1_000_000


def require_free_space(connection: Connection, plan: RoomPlan, undo_folder: Path) -> None:
    """Require space for the undo file and, if the database is on this machine, for its new rows.

    :raises RoomSkippedError: when a disk has too little space; the message names it.
    """
    needs = [(undo_folder, plan.bytes_before)]
    if (data := _data_directory(connection)) is not None:
        needs.append((data, plan.bytes_needed))
    for folder, bytes_needed in needs:
        free = shutil.disk_usage(folder).free
        if bytes_needed > free:
            raise RoomSkippedError(
                f"it needs about {bytes_needed / _MB:.0f} MB in {folder}; only {free / _MB:.0f} MB are free"
            )


def _data_directory(connection: Connection) -> Path | None:
    """Return the data directory of the database, if it is on this machine and the role may read its path."""
    if connection.info.host not in ("127.0.0.1", "::1", "localhost") and not connection.info.host.startswith("/"):
        return None
    row = connection.execute("select setting from pg_settings where name = 'data_directory'").fetchone()
    return Path(row[0]) if row and row[0] and os.access(row[0], os.X_OK) else None
