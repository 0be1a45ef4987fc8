"""Counts of whole tables, and their keys, come from the heap: an index may lack rows."""

from pathlib import Path
from typing import Final

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.sample import read_server_name
from synapse_lakehouse.postgres.connection import build_conninfo, connect
from synapse_lakehouse.postgres.errors import DamagedFileError
from synapse_lakehouse.postgres.rows.key_buckets import build_keys_query, count_rows_per_bucket, get_bucket_width
from synapse_lakehouse.postgres.rows.row_counts import count_rows
from synapse_lakehouse.postgres.rows.select_sql import build_select, build_stream_id_counts
from synapse_lakehouse.postgres.rows.snapshot_reader import open_snapshot, read_batches
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from tests.support.index_damage import PAGE_BYTES, Damage, damaged_sample, restore_old_file

ROWS: Final = 500
"""Number of new rows of each table, which an old index lacks."""
GROUPS: Final = "state_groups_pkey"
EVENTS: Final = "event_json_event_id_key"
CHANGES: Final = (
    "insert into event_json select event_id || 'x', room_id, internal_metadata, json, format_version from event_json"
    f" order by event_id limit {ROWS}",
    f"insert into state_groups select 1000000 + number, '!a', '$a' from generate_series(1, {ROWS}) as number",
    # Index-only scans are cheap for PostgreSQL if the visibility map is complete.
    "vacuum analyze",
)


@pytest.mark.parametrize("page_cost", [4, 1.1])
def test_a_damaged_index_changes_no_count(tmp_path: Path, page_cost: float) -> None:
    with damaged_sample(tmp_path / "pg", dict.fromkeys((GROUPS, EVENTS), restore_old_file), CHANGES) as (_, dsn):
        settings = Settings(
            _env_file=None,
            synapse_dsn=make_conninfo(dsn, options=f"-c random_page_cost={page_cost}"),
            synapse_server_name=read_server_name(),
        )
        declared = catalogue.load_catalogue()
        with connect(settings) as connection:
            assert connection.execute("show random_page_cost").fetchone() == (str(page_cost),)
            for table in map(declared.table, ("event_json", "state_groups")):
                copied = len(connection.execute(build_select(table)).fetchall())
                assert copied > ROWS
                assert count_rows(connection, table) == copied
                width = get_bucket_width(table)
                buckets = count_rows_per_bucket(connection, table, width)
                assert sum(buckets.values()) == copied
                assert len(connection.execute(build_keys_query(table, width, [*buckets])).fetchall()) == copied
            for table in declared.tables:
                for column in table.streams.values():
                    explained = connection.execute(sql.SQL("explain ") + build_stream_id_counts(table, column))
                    assert not any("Index" in line for (line,) in explained), table.name


def clear_first_page(before: bytes, after: bytes) -> bytes:
    """The index without its first page, which PostgreSQL reads for the plan of each query of the table."""
    return bytes(PAGE_BYTES) + after[PAGE_BYTES:]


def remove_pages(before: bytes, after: bytes) -> bytes:
    """The index's file without its pages."""
    return b""


@pytest.mark.parametrize(("damage", "named"), [(clear_first_page, GROUPS), (remove_pages, "base/")])
def test_an_index_without_its_first_page_is_named(tmp_path: Path, damage: Damage, named: str) -> None:
    with damaged_sample(tmp_path / "pg", {GROUPS: damage}, ()) as (_, dsn):
        settings = Settings(_env_file=None, synapse_dsn=dsn, synapse_server_name=read_server_name())
        table = catalogue.load_catalogue().table("state_groups")
        with pytest.raises(DamagedFileError, match=f"{named}.*REINDEX"), connect(settings) as connection:
            count_rows(connection, table)
        with (
            pytest.raises(DamagedFileError, match=f"{named}.*REINDEX"),
            export_snapshot(settings, catalogue.load_catalogue().model_copy(update={"tables": (table,)})) as (_, at),
            open_snapshot(build_conninfo(settings), at.name) as reader,
            read_batches(reader, build_select(table).as_string()) as batches,
        ):
            batches.read_all()
