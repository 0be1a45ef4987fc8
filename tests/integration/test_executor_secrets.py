"""Secrets of the catalog and of S3 stay in the driver; the test searches the memory of executors."""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from synapse_lakehouse.config.settings import Settings
from tests.conftest import environment
from tests.support.cluster import cluster

SESSION = """
from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.config.settings import Settings

spark = create_spark_session("test", Settings(_env_file=None))
spark.sql("create schema if not exists bronze")
spark.sql("create table bronze.numbers (number bigint)")
spark.range(100, numPartitions=4).selectExpr("id as number").writeTo("bronze.numbers").append()
numbers = spark.table("bronze.numbers").repartition(4)
assert numbers.rdd.map(lambda row: row.number).sum() == 4950
print("done", flush=True)
input()
"""
_CHUNK = 16 << 20


@pytest.mark.heavy
def test_executors_get_neither_the_catalog_s_password_nor_keys(
    new_lake: Callable[..., Settings], tmp_path: Path
) -> None:
    public_value, key, secret = (secrets.token_hex(16) for _ in range(3))
    lake = new_lake(
        lakehouse_catalog_properties={
            "s3.access-key-id": key, "s3.secret-access-key": secret, "table-default.shown": public_value
        }
    )  # fmt: skip
    password = str(urlsplit(str(lake.lakehouse_catalog_uri)).password)
    with cluster(tmp_path) as spark:
        process = subprocess.Popen(
            [sys.executable, "-c", SESSION], env=environment(lake) | spark.variables() | {"SPARK_MASTER": spark.master},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout
        assert "done\n" in iter(process.stdout.readline, "")
        executors = list(_list_application_pids(tmp_path))
        assert len(executors) >= 4, "two executors with their Python workers"
        executor_values = {
            value for executor in executors for value in _search_memory(executor, {public_value, key, secret, password})
        }
        driver_values = _search_memory(process.pid, {password, secret})
        process.communicate("\n")
    assert executor_values == {public_value}, "the public value shows that the search works"
    assert driver_values == {password, secret}


def _list_application_pids(folder: Path) -> Iterator[int]:
    """Yield the process IDs of applications that work in a folder below ``folder``."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if "/app-" in str((entry / "cwd").readlink().relative_to(folder)):
                yield int(entry.name)
        except (OSError, ValueError):
            continue


def _search_memory(pid: int, values: set[str]) -> set[str]:
    """Return the ``values`` that the memory of a process contains, which includes its variables and arguments."""
    results = set()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            addresses, rights, *_ = line.split()
            start, end = (int(item, 16) for item in addresses.split("-"))
            if not rights.startswith("rw"):
                continue
            rest = b""
            for address in range(start, end, _CHUNK):
                try:
                    content = rest + os.pread(memory.fileno(), min(_CHUNK, end - address), address)
                except OSError:
                    break
                results |= {value for value in values if value.encode() in content}
                rest = content[-64:]
    return results
