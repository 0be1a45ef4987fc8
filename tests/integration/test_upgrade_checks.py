"""A run records whether Synapse's sequences and collation allow a start."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime

import psycopg

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.orchestration.run_measurements import record_upgrade_checks
from tests.support.reader_role import reader_role
from tests.support.split_source import split_source

RUN = Run("run", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))


def record(settings: Settings, source: str) -> dict[str, tuple[int | None, bool]]:
    """Record the checks; return the number of checks, and whether there is a fault, by subject."""
    with reader_role(settings, source) as role, closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        record_upgrade_checks(settings.model_copy(update={"synapse_dsn": role.dsn}), load_catalogue(), RUN)
        rows = catalog.load_table("audit.upgrade_checks").scan().to_arrow().to_pylist()
    return {row["subject"]: (row["checked"], row["fault"] is not None) for row in rows}


def read_checks(settings: Settings) -> list[tuple[str, str | None]]:
    """Record the checks; return subject and fault of each recorded row."""
    with closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        record_upgrade_checks(settings, load_catalogue(), RUN)
        rows = catalog.load_table("audit.upgrade_checks").scan().to_arrow().to_pylist()
    return [(row["subject"], row["fault"]) for row in rows]


def test_a_sound_database_has_no_fault(new_lake: Callable[..., Settings], source_copy: str) -> None:
    rows = record(new_lake(), source_copy)
    assert rows["collation"] == (1, False)
    assert rows["sequences"][0]
    assert not rows["sequences"][1]


def test_faults_are_recorded(new_lake: Callable[..., Settings], source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("select setval('events_stream_seq', 1)")
        owner.execute("set allow_system_table_mods = on")
        owner.execute("update pg_database set datctype = 'C.UTF-8' where datname = current_database()")
    assert record(new_lake(), source_copy) == {"collation": (None, True), "sequences": (None, True)}


def test_both_databases_are_checked(new_lake: Callable[..., Settings], server: EmbeddedServer) -> None:
    with split_source(server) as (main, state), psycopg.connect(state, autocommit=True) as owner:
        split = {"synapse_dsn": main, "synapse_state_dsn": state}
        sequences = [fault for subject, fault in read_checks(new_lake(**split)) if subject == "sequences"]
        assert sequences == [None]
        owner.execute("select setval('state_group_id_seq', 1)")
        faults = [str(fault) for subject, fault in read_checks(new_lake(**split)) if subject == "sequences"]
        assert len(faults) == 2, "rows of state_groups, and events of main, have higher state groups"
        assert all("state_group_id_seq" in fault for fault in faults)


def test_an_unreachable_source_fails_no_run(new_lake: Callable[..., Settings]) -> None:
    settings = new_lake(synapse_dsn="postgresql://nobody@127.0.0.1:1/none")
    with closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        record_upgrade_checks(settings, load_catalogue(), RUN)
        assert catalog.load_table("audit.upgrade_checks").scan().to_arrow().num_rows == 0
