"""DuckDB's spill folders: concurrent processes have their own, and none remains."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_spill

ROWS = 400_000
SORT_SCRIPT = """
import sys, duckdb
from synapse_lakehouse.iceberg.read import duckdb_spill
from synapse_lakehouse.config.settings import Settings
folder = duckdb_spill.create_spill_folder(Settings(_env_file=None, lakehouse_home=sys.argv[1]))
with duckdb.connect(config={"temp_directory": str(folder), "memory_limit": "60MB", "threads": 1}) as connection:
    lines = f"select md5((range * {sys.argv[2]})::text) || repeat('{sys.argv[2]}', 300) as line from range(ROWS)"
    for _ in range(2):
        rows = connection.execute(f"from ({lines}) order by line").fetchmany(10)
    print(rows[0][0][:32], len(list(folder.iterdir())))
""".replace("ROWS", str(ROWS))


def test_concurrent_queries_spill_and_leave_nothing(tmp_path: Path) -> None:
    numbers = (3, 7)
    processes = [
        subprocess.Popen([sys.executable, "-c", SORT_SCRIPT, tmp_path, str(number)], stdout=subprocess.PIPE, text=True)
        for number in numbers
    ]
    outputs = [process.communicate(timeout=300)[0].splitlines()[-1].split() for process in processes]
    for number, (first, files) in zip(numbers, outputs, strict=True):
        assert first == min(hashlib.md5(str(n * number).encode()).hexdigest() for n in range(ROWS))
        assert int(files) > 0
    assert list((tmp_path / "duckdb").iterdir()) == []


def test_folders_of_killed_processes_are_deleted_after_a_day(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, lakehouse_home=tmp_path)
    abandoned, recent = duckdb_spill.create_spill_folder(settings), duckdb_spill.create_spill_folder(settings)
    for folder in (abandoned, recent):
        folder.mkdir()
        (folder / "rows.tmp").write_text("rows")
    yesterday = time.time() - 25 * 3600
    os.utime(abandoned, (yesterday, yesterday))
    duckdb_spill.create_spill_folder(settings)
    assert not abandoned.exists()
    assert recent.exists()
    assert abandoned.parent.stat().st_mode & 0o077 == 0, "spilled rows contain messages"


def test_queries_need_no_writable_home(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert duckdb_spill.create_spill_folder(Settings(_env_file=None, lakehouse_home=tmp_path / "file")).name
