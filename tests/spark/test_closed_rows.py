"""A changed row below the safe bound is reported, unless Synapse changes such rows."""

import pytest

from synapse_lakehouse.audit import store
from synapse_lakehouse.postgres.rows.key_ranges import RANGE_DIGITS
from synapse_lakehouse.postgres.rows.range_digest import RANGE_COUNT
from synapse_lakehouse.spark_app import SparkApp
from tests.support.stream_lake import Database, Examined, Found


@pytest.mark.heavy
def test_closed_rows_may_change_only_as_synapse_changes_them(examined_lake: tuple[Examined, Database]) -> None:
    examined, source = examined_lake
    ((like, _), (other, other_id), (third, third_id), (purged, _)) = source.run(
        "select event_id, stream_ordering from events where state_key is null and stream_ordering between 50 and 2000"
        " and stream_ordering % 5 = 0 order by stream_ordering limit 4"
    ).fetchall()
    fetched = -source.reserve("events_backfill_stream_seq")
    old = source.write(like, fetched)
    source.store()
    source.store("backfill")
    examined.examine()

    _change_as_synapse_does(source, old, like, other, third, purged)
    source.store()
    assert {gap[4] for gap in examined.examine()} <= {"purged", "rolled_back"}
    facts = store.read_run_rows(examined.app().catalog, "audit.stream_facts", f"test_{examined.runs - 1}")
    reread = {(row["stream"], row["table_name"]): row["reread_ids"] for row in facts}
    assert reread["events", "events"] > 100
    assert reread["backfill", "events"] > 0
    assert reread["events", "current_state_delta_stream"] == 0, "the table did not change"

    # Synapse never changes a sender, the event of an ID, or a type; a removed event ID equals that of a removal.
    source.run("update events set sender = '@mallory:example.org' where event_id = %s", [other])
    source.run("update events set event_id = '$restored' where event_id = %s", [third])
    source.run("update events set type = 'm.other' where event_id = %s", [old])
    (delta,) = source.fetch_one("select min(stream_id) from current_state_delta_stream where event_id is not null")
    source.run("update current_state_delta_stream set event_id = null where stream_id = %s", [delta])
    source.run("update events set outlier = false where stream_ordering < 1000")
    assert _changed(examined) == {
        ("events", "events", other_id, other_id, "changed", "accepted_row", None),
        ("events", "events", third_id, third_id, "changed", "accepted_row", None),
        ("backfill", "events", fetched, fetched, "changed", "accepted_row", None),
        ("events", "current_state_delta_stream", delta, delta, "changed", "accepted_row", None),
    }

    # If the lake had been wrong, reconciliation would have repaired ranges of keys.
    def copy_and_repair(app: SparkApp) -> None:
        Examined.copy(examined, app)
        ranges = [f"{number:0{RANGE_DIGITS}x}" for number in range(RANGE_COUNT)]
        store.append_audit_rows(app.catalog, "audit.repairs", [{"table_name": "events", "ranges": ranges}], app.run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examined, "copy", copy_and_repair)
        assert {table for _, table, *_ in _changed(examined)} == {"current_state_delta_stream"}

    examined.examine()
    assert "changed" not in {gap[4] for gap in examined.examine()}, "published rows count as accepted"


def _change_as_synapse_does(source: Database, old: str, like: str, other: str, third: str, purged: str) -> None:
    """Flip outliers, reject late, censor redactions, cap depths, fill columns, purge and move events, set state."""
    source.run("update events set outlier = not outlier where stream_ordering < 1000 or event_id = %s", [old])
    source.run("update events set rejection_reason = 'auth_error' where event_id = %s", [other])
    source.run("update events set topological_ordering = 1 + topological_ordering where event_id = %s", [third])
    source.run("update event_json set json = '{}', internal_metadata = '{}' where event_id in (%s, %s)", [other, old])
    source.run("update room_memberships set forgotten = 1, participant = true")
    source.run("delete from event_json where event_id = %s", [purged])
    source.run("update events set stream_ordering = %s where event_id = %s", [source.reserve(), purged])
    source.run(
        "insert into ex_outlier_stream (event_stream_ordering, event_id, state_group, instance_name)"
        " select %s, event_id, 1, 'persister1' from events where event_id = %s", [source.reserve(), like],
    )  # fmt: skip


def _changed(examined: Examined) -> Found:
    """Changed rows that a run finds, which publishes nothing."""
    return {gap for gap in examined.examine(publish=False) if gap[4] == "changed"}
