"""``lakehouse doctor --deep`` searches for duplicate keys."""

import psycopg

from synapse_lakehouse import catalogue
from synapse_lakehouse.postgres.rows import duplicates
from tests.support.doctor import Examine


def test_deep_finds_rows_that_a_broken_index_hides(examine: Examine, reader: str, source_copy: str) -> None:
    index = "update pg_index set indisready = {}, indisvalid = {} where indexrelid = 'rooms_pkey'::regclass"
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(index.format("false", "false").encode())
    with psycopg.connect(source_copy, autocommit=True) as owner:
        row = owner.execute(
            "insert into rooms select * from rooms order by room_id limit 1 returning room_id"
        ).fetchone()
        assert row
        owner.execute(index.format("true", "true").encode())
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("set enable_seqscan = off; set enable_bitmapscan = off")
        assert owner.execute("select count(*) from rooms where room_id = %s", row).fetchone() == (1,)
    code, findings = examine("--deep", synapse_dsn=reader)
    assert code == 1
    (duplicate, rest) = findings["duplicates"]
    assert duplicate["message"].startswith("rooms ")
    assert duplicate["message"].endswith(f": {row[0]}")
    assert "REINDEX" in duplicate["advice"]
    assert rest["level"] == "OK"
    _, findings = examine(synapse_dsn=reader)
    assert "duplicates" not in findings


def test_duplicates_are_counted_in_parts(reader: str) -> None:
    declared = catalogue.load_catalogue()
    with psycopg.connect(reader) as connection:
        for table in (declared.table("events"), declared.table("receipts_linearized")):
            assert duplicates.find_duplicate_keys(connection, table, rows_per_pass=100) == duplicates.DuplicateKeys(
                0, ()
            )
        by_room = declared.table("events").model_copy(update={"primary_key": ("room_id",)})
        full = duplicates.find_duplicate_keys(connection, by_room)
        assert duplicates.find_duplicate_keys(connection, by_room, rows_per_pass=100).keys == full.keys > 10


def test_a_locked_table_is_reported_and_the_rest_is_read(examine: Examine, reader: str, source_copy: str) -> None:
    with psycopg.connect(source_copy) as locker:
        locker.execute("lock table threads in access exclusive mode")
        code, findings = examine("--deep", synapse_dsn=reader, lakehouse_statement_timeout_seconds=1)
    assert code == 0
    (locked, rest) = findings["duplicates"]
    assert (locked["level"], rest["level"]) == ("WARN", "OK")
    assert locked["message"].startswith("threads ")
    assert "canceling statement due to" in locked["message"]
