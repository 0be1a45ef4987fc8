"""Measure the planning of state compression beside Synapse's own compressor, on the same rooms in PostgreSQL.

``python -m bench.compression`` prints a table. The reference verifies as we do, and cannot but write as well.
"""

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
import typer

from bench.state_rooms import SHAPES, Tables, room
from sample.environment import python_with
from synapse_lakehouse.embedded import postgres
from synapse_lakehouse.settings import PROJECT

REFERENCE = "synapse-auto-compressor"
VERSION = "0.1.2"
VENV = PROJECT / ".lakehouse" / "reference-compressor-venv"
RUN = """
import sys
from synapse_auto_compressor import compress_state_events_table
compress_state_events_table(sys.argv[1], 1000000000, "100,50,25", 1)
"""
SCHEMA = """
CREATE TABLE state_groups (id bigint PRIMARY KEY, room_id text NOT NULL, event_id text NOT NULL DEFAULT '$');
CREATE INDEX ON state_groups (room_id);
CREATE TABLE state_group_edges (state_group bigint NOT NULL, prev_state_group bigint NOT NULL);
CREATE INDEX ON state_group_edges (state_group);
CREATE INDEX ON state_group_edges (prev_state_group);
CREATE TABLE state_groups_state (
    state_group bigint NOT NULL, room_id text NOT NULL DEFAULT '!', type text NOT NULL, state_key text NOT NULL,
    event_id text NOT NULL
);
CREATE INDEX ON state_groups_state (state_group, type, state_key);
"""


@dataclass(frozen=True)
class Spent:
    """What a process took, and what it printed."""

    wall: float
    cpu: float
    peak_mb: float
    output: str


def main(only: str = "", scale: float = 1.0) -> None:
    """Compare on the shapes whose name contains ``only``, with ``scale`` times as many groups."""
    python = python_with(REFERENCE, VERSION, VENV)
    typer.echo(
        "| room | rows | reference leaves | best leaves | share | reference CPU s | levels CPU s | best CPU s |"
        " reference MB | ours MB |"
    )
    typer.echo("|---" * 10 + "|")
    with (
        tempfile.TemporaryDirectory(dir=PROJECT / ".lakehouse") as folder,
        postgres.running(Path(folder) / "postgres", options=("fsync=off", "max_wal_size=8GB")) as server,
    ):
        for number, (name, shape) in enumerate(SHAPES.items()):
            if only not in name:
                continue
            server.create_database(f"room_{number}")
            dsn = server.dsn(f"room_{number}")
            _fill(dsn, room(shape.times(scale), seed=1))
            ours = {
                strategy: _spent([sys.executable, "-m", "bench.compressing", strategy, dsn])
                for strategy in ("levels", "best")
            }
            theirs = _spent([python, "-c", RUN, dsn])
            with psycopg.connect(dsn) as connection:
                (left,) = connection.execute("SELECT count(*) FROM state_groups_state").fetchone() or (0,)
            before, by_levels, levels_cpu = map(float, ours["levels"].output.split())
            _, fewest, best_cpu = map(float, ours["best"].output.split())
            assert by_levels == left, (by_levels, left)
            typer.echo(
                f"| {name} | {before:.0f} | {left} | {fewest:.0f} | {fewest / left:.2f} | {theirs.cpu:.2f} |"
                f" {levels_cpu:.2f} (1/{theirs.cpu / levels_cpu:.0f}) |"
                f" {best_cpu:.2f} (1/{theirs.cpu / best_cpu:.0f}) |"
                f" {theirs.peak_mb:.0f} | {max(one.peak_mb for one in ours.values()):.0f} |"
            )


def _fill(dsn: str, contents: Tables) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(SCHEMA)
        for name, content in zip(("state_groups", "state_group_edges", "state_groups_state"), contents, strict=True):
            _copy(connection, name, content)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _copy(connection: psycopg.Connection, name: str, content: pa.Table) -> None:
    text = io.BytesIO()
    pa_csv.write_csv(content, text, pa_csv.WriteOptions(include_header=False))
    with connection.cursor().copy(f"COPY {name} ({', '.join(content.column_names)}) FROM STDIN (FORMAT csv)") as copy:
        copy.write(text.getbuffer())


def _spent(command: Sequence[str | Path]) -> Spent:
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, str(command[0]))
    return Spent(time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output)


if __name__ == "__main__":
    typer.run(main)
