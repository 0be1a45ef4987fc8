"""Synapse's own compressor, in a process of its own."""

import subprocess
from typing import Final

from sample.environment import compressor_python

_RUN: Final = """
from os import environ as given
from synapse_auto_compressor import compress_state_events_table
compress_state_events_table(given["DSN"], int(given["CHUNK"]), given["LEVELS"], int(given["CHUNKS"]))
"""


def run_reference(dsn: str, chunk_size: int, levels: str, chunks: int) -> None:
    """One run of the compressor."""
    environment = {"DSN": dsn, "CHUNK": str(chunk_size), "LEVELS": levels, "CHUNKS": str(chunks)}
    python = str(compressor_python())
    result = subprocess.run([python, "-c", _RUN], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
