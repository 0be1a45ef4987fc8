"""The ways of compressing a room, each on a copy of its own of a database with that room."""

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

from bench.compression.planning import WHOLE
from bench.compression.synthetic_rooms import ROOM, STATE_TABLES, Tables
from bench.compression.transactions import transactions
from sample.environment import compressor_python
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer

_ORIGINAL: Final = "original"
_COPY: Final = "copy"
_REFERENCE: Final = f"""
import sys
from synapse_auto_compressor import compress_state_events_table
compress_state_events_table(sys.argv[1], {WHOLE}, "100,50,25", 1)
"""
_OTHERS: Final = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
_MOVED: Final = """
select n_tup_ins + n_tup_del, (select count(*) from state_groups_state)
from pg_stat_user_tables where relname = 'state_groups_state'
"""


@dataclass(frozen=True)
class Plan:
    """What a strategy makes of a room, and the CPU seconds of reading it, planning and verifying.

    ``least``: rows without which its states cannot be stored, whatever the chains. ``memory``: bytes at most.
    """

    rows_before: int
    rows_after: int
    least: int
    cpu: float
    memory: int


@dataclass(frozen=True)
class Rewritten:
    """A room that was compressed: what the process took in all, and how it wrote.

    ``moved``: rows that were deleted and inserted, in ``writing`` seconds from the first lock to the last commit.
    ``locks``: seconds that each transaction held its locks.
    """

    rows_after: int
    wall: float
    cpu: float
    moved: int
    writing: float
    locks: list[float]


def fill(server: EmbeddedServer, contents: Tables) -> None:
    """Let the server have one database to copy, with what is made up."""
    server.tool("dropdb", "--force", "--if-exists", _ORIGINAL)
    server.create_database(_ORIGINAL)
    groups, edges, rows = contents
    anything = pa.repeat("$any", len(groups))
    in_room = pa.repeat(groups["room_id"][0], len(rows))
    with psycopg.connect(server.dsn(_ORIGINAL)) as connection:
        connection.execute(STATE_TABLES.encode())
        _insert(connection, "state_groups", groups.append_column("event_id", anything))
        _insert(connection, "state_group_edges", edges)
        _insert(connection, "state_groups_state", rows.append_column("room_id", in_room))
    with psycopg.connect(server.dsn(_ORIGINAL), autocommit=True) as connection:
        connection.execute("vacuum analyze")


def plan(server: EmbeddedServer, strategy: str) -> Plan:
    """Plan, and write nothing."""
    command = [sys.executable, "-m", "bench.compression.planning", strategy, server.dsn(_ORIGINAL)]
    return Plan(**json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))


def by_reference(server: EmbeddedServer, home: Path) -> Rewritten:
    """Compress as Synapse's own compressor does, which goes on to verify what it decided."""
    dsn = _copy(server)
    return _rewritten(server, [compressor_python(), "-c", _REFERENCE, dsn], home, {})


def by_ours(server: EmbeddedServer, home: Path, strategy: str) -> Rewritten:
    """Compress with ``lakehouse compress apply``, which reads everything again afterwards and compares it."""
    dsn = _copy(server)
    options = ["--room", ROOM, "--strategy", strategy, "--chunk-size", str(WHOLE), "--yes", "--format", "json"]
    command: list[str | Path] = [Path(sys.executable).with_name("lakehouse"), "compress", "apply", *options]
    given = {"SYNAPSE_DSN": dsn, "SYNAPSE_WRITE_DSN": dsn, "LAKEHOUSE_HOME": str(home / "lake")}
    return _rewritten(server, command, home, given)


def _copy(server: EmbeddedServer) -> str:
    server.tool("dropdb", "--force", "--if-exists", _COPY)
    server.create_database(_COPY, _ORIGINAL)
    # What making the copy has left to be written is not what is measured.
    server.tool("psql", "--quiet", "--command", "checkpoint")
    return server.dsn(_COPY)


def _rewritten(
    server: EmbeddedServer, command: Sequence[str | Path], home: Path, given: Mapping[str, str]
) -> Rewritten:
    logged = server.log.stat().st_size
    began = time.monotonic()
    with (
        (home / "output").open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | given) as process,
    ):
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - began
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed, and said: {(home / 'output').read_text()[-2000:]}")
    moved, left = _outcome(server.dsn(_COPY))
    with server.log.open() as log:
        log.seek(logged)
        wrote = [one for one in transactions(log) if one.database == _COPY]
    return Rewritten(
        rows_after=left,
        wall=wall,
        cpu=usage.ru_utime + usage.ru_stime,
        moved=moved,
        writing=max(one.ended for one in wrote) - min(one.began for one in wrote),
        locks=[one.ended - one.began for one in wrote],
    )


def _outcome(dsn: str) -> tuple[int, int]:
    """Rows that were deleted or inserted, and those that are left."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute(_OTHERS).fetchone() != (0,):
            # What a session did is counted when it ends.
            time.sleep(0.1)
        moved, left = connection.execute(_MOVED).fetchone() or (0, 0)
    return moved, left


def _insert(connection: psycopg.Connection, table: str, content: pa.Table) -> None:
    text = io.BytesIO()
    pa_csv.write_csv(content, text, pa_csv.WriteOptions(include_header=False))
    statement = f"copy {table} ({', '.join(content.column_names)}) from stdin (format csv)"
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        copy.write(text.getbuffer())
