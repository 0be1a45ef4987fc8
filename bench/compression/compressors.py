"""Compress a room with the lakehouse or with Synapse's own compressor, each on a new copy of the database."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv

from bench.compression.plan_process import WHOLE_ROOM
from bench.compression.synthetic_rooms import ROOM, STATE_TABLES, Tables
from bench.compression.transaction_log import transactions
from sample.environment import compressor_python
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer

_ORIGINAL: Final = "original"
_COPY: Final = "copy"
_REFERENCE: Final = f"""
import sys
from synapse_auto_compressor import compress_state_events_table
compress_state_events_table(sys.argv[1], {WHOLE_ROOM}, "100,50,25", 1)
"""
_SESSIONS: Final = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
)
_ROWS: Final = """
select n_tup_ins + n_tup_del, (select count(*) from state_groups_state)
from pg_stat_user_tables where relname = 'state_groups_state'
"""


@dataclass(frozen=True)
class Plan:
    """A strategy's plan for a room, the CPU seconds of reading, planning and verifying, and the peak memory in bytes.

    ``minimum_rows`` is the lower bound of any plan, whatever the length of its chains.
    """

    rows_before: int
    rows_after: int
    minimum_rows: int
    cpu: float
    memory: int


@dataclass(frozen=True)
class Compression:
    """A compressed room, and the wall time and CPU time of the whole process.

    ``rows_written``: deleted and inserted rows. ``write_seconds``: from the first lock to the last commit.
    ``lock_seconds``: duration of the locks of each transaction.
    """

    rows_after: int
    wall: float
    cpu: float
    rows_written: int
    write_seconds: float
    lock_seconds: list[float]


def create_original(server: EmbeddedServer, contents: Tables) -> None:
    """Create the database that is copied for each compression."""
    server.tool("dropdb", "--force", "--if-exists", _ORIGINAL)
    server.create_database(_ORIGINAL)
    groups, edges, rows = contents
    event_ids = pa.repeat("$any", len(groups))
    room_ids = pa.repeat(groups["room_id"][0], len(rows))
    with psycopg.connect(server.dsn(_ORIGINAL)) as connection:
        connection.execute(STATE_TABLES.encode())
        _insert(connection, "state_groups", groups.append_column("event_id", event_ids))
        _insert(connection, "state_group_edges", edges)
        _insert(connection, "state_groups_state", rows.append_column("room_id", room_ids))
    with psycopg.connect(server.dsn(_ORIGINAL), autocommit=True) as connection:
        connection.execute("vacuum analyze")


def plan(server: EmbeddedServer, strategy: str) -> Plan:
    """Plan the compression without writing."""
    command = [sys.executable, "-m", "bench.compression.plan_process", strategy, server.dsn(_ORIGINAL)]
    return Plan(**json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))


def compress_by_reference(server: EmbeddedServer, home: Path) -> Compression:
    """Compress with Synapse's own compressor, which also verifies its plan."""
    dsn = _copy_original(server)
    return _run(server, [compressor_python(), "-c", _REFERENCE, dsn], home, {})


def compress_by_lakehouse(server: EmbeddedServer, home: Path, strategy: str) -> Compression:
    """Compress with ``lakehouse compress apply``, which then reads the room again and compares all groups."""
    dsn = _copy_original(server)
    options = ["--room", ROOM, "--strategy", strategy, "--chunk-size", str(WHOLE_ROOM), "--yes", "--format", "json"]
    command: list[str | Path] = [Path(sys.executable).with_name("lakehouse"), "compress", "apply", *options]
    settings = {"SYNAPSE_DSN": dsn, "SYNAPSE_WRITE_DSN": dsn, "LAKEHOUSE_HOME": str(home / "lake")}
    return _run(server, command, home, settings)


def _copy_original(server: EmbeddedServer) -> str:
    server.tool("dropdb", "--force", "--if-exists", _COPY)
    server.create_database(_COPY, _ORIGINAL)
    # The measurement must not include writes of the copy.
    server.tool("psql", "--quiet", "--command", "checkpoint")
    return server.dsn(_COPY)


def _run(server: EmbeddedServer, command: Sequence[str | Path], home: Path, settings: Mapping[str, str]) -> Compression:
    log_start = server.log.stat().st_size
    started = time.monotonic()
    with (
        (home / "output").open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | settings) as process,
    ):
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - started
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed: {(home / 'output').read_text()[-2000:]}")
    rows_written, rows_after = _count_rows(server.dsn(_COPY))
    with server.log.open() as log:
        log.seek(log_start)
        writes = [transaction for transaction in transactions(log) if transaction.database == _COPY]
    return Compression(
        rows_after=rows_after,
        wall=wall,
        cpu=usage.ru_utime + usage.ru_stime,
        rows_written=rows_written,
        write_seconds=max(write.end for write in writes) - min(write.start for write in writes),
        lock_seconds=[write.end - write.start for write in writes],
    )


def _count_rows(dsn: str) -> tuple[int, int]:
    """Return the rows that were deleted or inserted, and the rows of the table."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute(_SESSIONS).fetchone() != (0,):
            # PostgreSQL adds a session's counters at the end of the session.
            time.sleep(0.1)
        rows_written, rows_after = connection.execute(_ROWS).fetchone() or (0, 0)
    return rows_written, rows_after


def _insert(connection: psycopg.Connection, table: str, content: pa.Table) -> None:
    text = io.BytesIO()
    pa_csv.write_csv(content, text, pa_csv.WriteOptions(include_header=False))
    statement = f"copy {table} ({', '.join(content.column_names)}) from stdin (format csv)"
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        copy.write(text.getbuffer())
