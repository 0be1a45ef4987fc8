"""Measure the upper limit of one connection: a binary COPY whose rows psql discards."""

import subprocess
from pathlib import Path

from bench.copy import select_statements
from bench.copy.contenders import CopyResult
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres


class CopyLimit:
    """Let psql write the COPY to /dev/null."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def clear(self) -> None:
        """Do nothing: there are no files."""

    def copy(self, table: str) -> CopyResult:
        """Send the columns that the lakehouse reads, as they are stored."""
        return copy_to_null(self.settings, select_statements.stored_columns(table))

    def close(self) -> None:
        """Do nothing."""


def copy_to_null(settings: Settings, statement: str) -> CopyResult:
    """Send the rows of ``statement``, and discard them."""
    copy = rf"\copy ({statement}) to /dev/null (format binary)"
    command: list[str | Path] = [embedded_postgres.BIN / "psql", "-Xc", copy, str(settings.synapse_dsn)]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return CopyResult(int(result.stdout.split()[-1]), 0)
