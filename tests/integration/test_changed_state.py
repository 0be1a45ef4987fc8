"""Seeded faults of room state, planted between two runs, are found by the second run, in their room and kind."""

import random
from collections.abc import Callable

import psycopg
import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.conftest import lakehouse
from tests.support.state_faults import StateFaults

SEED = 47
FAULTS = 140


@pytest.mark.heavy
def test_planted_faults_of_state_are_found(new_lake: Callable[..., Settings], source_copy: str) -> None:
    lake = new_lake(synapse_dsn=source_copy)
    assert lakehouse(lake, "run").returncode == 0
    with psycopg.connect(source_copy) as source:
        faults = set(StateFaults(source, random.Random(SEED)).plant(FAULTS))
    done = lakehouse(lake, "run")
    assert done.returncode == 0, done.stdout + done.stderr
    with duckdb_reader.open_duckdb(lake) as connection:
        release = duckdb_reader.get_release(connection, lake)
        duckdb_reader.create_views(connection, lake, release, ["gold.state_integrity"])
        found = connection.execute("select check_name, subject, room_id, severity from gold.state_integrity").fetchall()
    assert [fault for fault in faults if (fault.check, fault.subject, fault.room, "fail") not in found] == []
    changed = {subject for check, subject, *_ in found if check == "state_group_changed"}
    assert changed == {fault.subject for fault in faults if fault.check == "state_group_changed"}
    rooms = {fault.room for fault in faults}
    assert {room for _, _, room, severity in found if severity != "info"} <= rooms
