"""CONTRIBUTING names all files that change for a new table, column or stream.

The test copies the project, edits the files that CONTRIBUTING names, and runs ``make generate``. Checks of the copy
fail before and pass after.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER

SOURCES = "dbt/models/bronze/_synapse__sources.yml"
ROW_SCHEMAS = "src/synapse_lakehouse/replication/protocol/row_schemas.py"

TABLE = """\
      - name: destinations
        description: Servers that this server sends events to.
        config:
          meta:
            primary_key: [destination]
        columns:
          - {name: destination, data_type: string, description: Name of the server.}
          - {name: retry_interval, data_type: bigint, description: Milliseconds until the next try.}

"""
COLUMN = "          - {name: id, data_type: string, description: ID of the task.}\n"
STREAM = """\
          device_lists_remote:
            description: Devices of other servers whose changes wait to be announced.
            stream_positions: null
            sequence: device_lists_sequence
            writers: device_lists
            contiguity: transient
            why: Rows are deleted when the change is announced.
"""
STREAM_TABLE = """\
      - name: device_lists_remote_pending
        description: Changed devices of other servers. Counted only.
        config:
          meta:
            primary_key: [stream_id]
            load: measure
            streams: {device_lists_remote: stream_id}
            writer_column: instance_name
        columns:
          - {name: stream_id, data_type: bigint, description: Position in the stream device_lists_remote.}
          - *instance_name

"""
ROW_SCHEMA = '    "device_lists_remote": (_declare("device_lists_remote_pending", (WITHHELD,)),),\n'

AT_A_TABLE = "      - name: user_signature_stream\n"
AT_A_COLUMN = "          - {name: resource_id,"
AT_A_STREAM = "          un_partial_stated_room:\n"
AT_A_ROW_SCHEMA = '    "un_partial_stated_room": (_declare('

CHANGES = {
    "add a table of Synapse": [(SOURCES, AT_A_TABLE, TABLE)],
    "add a column of Synapse": [(SOURCES, AT_A_COLUMN, COLUMN)],
    "add a stream": [
        (SOURCES, AT_A_STREAM, STREAM),
        (SOURCES, AT_A_TABLE, STREAM_TABLE),
        (ROW_SCHEMAS, AT_A_ROW_SCHEMA, ROW_SCHEMA),
    ],
}
"""Changes by row of CONTRIBUTING: file, text before which the change inserts, inserted text."""

GENERATED_CHECKS = [
    "tests/unit/test_compose.py::test_the_reader_has_the_grants_of_the_catalogue",
    "tests/unit/test_docs.py::test_generated_pages_equal_their_declarations",
    "tests/unit/test_docs.py::test_the_list_of_excluded_columns_is_generated",
]
DECLARATION_CHECKS = ["tests/unit/test_catalogue.py", "tests/unit/test_row_schemas.py"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the project, with a ``uv`` that runs commands in the environment of this test."""
    ignored = shutil.ignore_patterns(
        ".git", ".venv", ".lakehouse", ".tools", ".*_cache", "__pycache__", "target", "logs"
    )
    copy = Path(shutil.copytree(PROJECT_FOLDER, tmp_path / "copy", ignore=ignored))
    (copy / "uv").write_text('#!/bin/sh\n[ "$1" != run ] || { shift 2; exec "$@"; }\n')
    (copy / "uv").chmod(0o755)
    return copy


def test_the_named_files_suffice(copy: Path) -> None:
    for row, changes in CHANGES.items():
        assert {file for file, _, _ in changes} == _named_files(row)
        for file, anchor, insertion in changes:
            text = (copy / file).read_text()
            assert text.count(anchor) == 1
            (copy / file).write_text(text.replace(anchor, insertion + anchor))
    assert _failed_checks(copy) == GENERATED_CHECKS

    _run(copy, "make", "generate", "UV=./uv").check_returncode()

    assert _failed_checks(copy) == []
    grants = (copy / "docker/postgres/reader.sql").read_text()
    pages = (copy / "docs/reference/tables.md").read_text()
    excluded_columns = (copy / "src/synapse_lakehouse/postgres/excluded_columns.txt").read_text()
    for table, column in [("destinations", "retry_interval"), ("scheduled_tasks", "id")]:
        assert re.search(rf"\b{column}\b.* {table}\b", grants, re.IGNORECASE)
        assert re.search(rf"`bronze.{table}`\n(?:[^#]*\n)?\| `{column}` \|", pages)
        assert not re.search(rf"^{table}:.* {column}\b", excluded_columns, re.MULTILINE)
    assert re.search(r"\bstream_id\b.* device_lists_remote_pending\b", grants, re.IGNORECASE)


def _named_files(row: str) -> set[str]:
    """Return the files that CONTRIBUTING names for a change; "the same file" is the file of the row above."""
    lines = (PROJECT_FOLDER / "CONTRIBUTING.md").read_text().splitlines()
    (index,) = (number for number, line in enumerate(lines) if line.startswith(f"| {row} |"))
    if "The same file" in lines[index]:
        index -= 1
    return set(re.findall(r"`([\w./]+\.\w+)`", lines[index]))


def _failed_checks(copy: Path) -> list[str]:
    """Return the checks that fail in ``copy``."""
    checks = [*DECLARATION_CHECKS, *GENERATED_CHECKS]
    result = _run(copy, sys.executable, "-m", "pytest", "--noconftest", "-p", "no:xdist", "-q", "-rf", *checks)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    return sorted(re.findall(r"^FAILED (\S+)", result.stdout, re.MULTILINE))


def _run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(copy / "src"), "COLUMNS": "200"}
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
