"""The limit: one binary COPY, thrown away by its reader."""

import subprocess
from pathlib import Path

from bench import parts
from bench.contenders import Copied
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres


class CopyLimit:
    """psql, which does nothing with what the server sends."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def clear(self) -> None:
        """Nothing is kept."""

    def copy(self, table: str) -> Copied:
        """Send the columns of ``table`` that the lakehouse reads once, as they are stored."""
        return thrown_away(self.settings, parts.bare(table))

    def close(self) -> None:
        """Nothing is held."""


def thrown_away(settings: Settings, statement: str) -> Copied:
    """The rows of ``statement``, sent and dropped."""
    copy = rf"\copy ({statement}) to /dev/null (format binary)"
    command: list[str | Path] = [embedded_postgres.BIN / "psql", "-Xc", copy, str(settings.synapse_dsn)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Copied(int(done.stdout.split()[-1]), 0)
