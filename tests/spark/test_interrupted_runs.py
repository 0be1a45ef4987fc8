"""The next run continues correctly after a publication that stopped, and after a compaction of a half-copied lake."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from synapse_lakehouse.audit import store
from synapse_lakehouse.iceberg.write import branches
from synapse_lakehouse.iceberg.write.publish import fast_forward_main
from tests.support.incremental_lake import Source
from tests.support.small_lake import SmallLake

TABLES = ("event_json", "erased_users", "receipts_linearized")
CENSOR = (
    "update event_json set json = '{}' where event_id in (select event_id from event_json order by event_id limit 7)"
)


def test_tables_ahead_of_the_release_are_set_back(lake: SmallLake) -> None:
    with _source(lake) as source:
        source.execute(CENSOR)
        source.execute("insert into erased_users values ('@erased:example.org')")
    stopped = lake.app()
    lake.copy(stopped)
    fast_forward_main(stopped.spark, "bronze.event_json", stopped.run.branch, stopped.run.tag)
    release = store.read_latest_release(stopped.catalog)
    assert release
    assert branches.restore_release(stopped.catalog, release.tables) == ["bronze.event_json"]
    assert branches.restore_release(stopped.catalog, release.tables) == []
    branches.drop_branch(stopped.catalog, stopped.run.branch)
    row = lake.advance()["event_json"]
    assert (row["extent"], row["rows_replaced"]) == ("changed", 7)
    assert lake.equals_source()


def test_a_copy_from_before_a_compaction_is_not_resumed(lake: SmallLake) -> None:
    with _source(lake) as source:
        source.execute("update event_json set format_version = format_version where event_id < '$B'")
        lake.advance()
        source.execute("update event_json set format_version = format_version where event_id > '$x'")
    failed = lake.app()
    lake.copy(failed)
    before = store.read_latest_release(failed.catalog)
    lake.maintain(days=30)
    compacted = store.read_latest_release(failed.catalog)
    assert before
    assert compacted
    assert compacted.tables["bronze.event_json"] != before.tables["bronze.event_json"]

    app = lake.app()
    branches.resume_branch(app.catalog, [failed.run.branch], app.run.branch)
    lake.copy(app)
    lake.publish(app)
    assert {row["extent"] for row in lake.ledger(app) if row["table_name"] == "event_json"} == {"changed"}
    assert lake.equals_source()


@contextmanager
def _source(lake: SmallLake) -> Iterator[Source]:
    """Yield a session that can change the source without checks of foreign keys."""
    with psycopg.connect(str(lake.settings.synapse_dsn), autocommit=True) as source:
        source.execute("set session_replication_role = replica")
        yield source
