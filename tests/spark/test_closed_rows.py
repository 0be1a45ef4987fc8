"""A changed row below the safe bound is reported, unless Synapse changes such rows."""

import pytest

from synapse_lakehouse.audit import store
from synapse_lakehouse.postgres.rows.key_ranges import RANGE_DIGITS
from synapse_lakehouse.postgres.rows.range_digest import RANGE_COUNT
from synapse_lakehouse.spark_app import SparkApp
from tests.support.stream_lake import Database, Found, MeasuredLake


@pytest.mark.heavy
def test_closed_rows_may_change_only_as_synapse_changes_them(open_measured_lake: tuple[MeasuredLake, Database]) -> None:
    lake, source = open_measured_lake
    ((outlier_event, _), (rejected_event, rejected_id), (capped_event, capped_id), (purged_event, _)) = source.run(
        "select event_id, stream_ordering from events where state_key is null and stream_ordering between 50 and 2000"
        " and stream_ordering % 5 = 0 order by stream_ordering limit 4"
    ).fetchall()
    backfilled_id = -source.reserve("events_backfill_stream_seq")
    backfilled_event = source.write(outlier_event, backfilled_id)
    source.store()
    source.store("backfill")
    lake.examine()

    _change_as_synapse_does(source, backfilled_event, outlier_event, rejected_event, capped_event, purged_event)
    source.store()
    assert {gap[4] for gap in lake.examine()} <= {"purged", "rolled_back"}
    facts = store.read_run_rows(lake.app().catalog, "audit.stream_facts", f"test_{lake.runs - 1}")
    reread_ids = {(row["stream"], row["table_name"]): row["reread_ids"] for row in facts}
    assert reread_ids["events", "events"] > 100
    assert reread_ids["backfill", "events"] > 0
    assert reread_ids["events", "current_state_delta_stream"] == 0, "the table did not change"

    # Synapse never changes a sender, the event of an ID, or a type. A delta without an event ID is a removal of state.
    source.run("update events set sender = '@mallory:example.org' where event_id = %s", [rejected_event])
    source.run("update events set event_id = '$restored' where event_id = %s", [capped_event])
    source.run("update events set type = 'm.other' where event_id = %s", [backfilled_event])
    (delta_id,) = source.fetch_one("select min(stream_id) from current_state_delta_stream where event_id is not null")
    source.run("update current_state_delta_stream set event_id = null where stream_id = %s", [delta_id])
    source.run("update events set outlier = false where stream_ordering < 1000")
    assert _find_changed_rows(lake) == {
        ("events", "events", rejected_id, rejected_id, "changed", "accepted_row", None),
        ("events", "events", capped_id, capped_id, "changed", "accepted_row", None),
        ("backfill", "events", backfilled_id, backfilled_id, "changed", "accepted_row", None),
        ("events", "current_state_delta_stream", delta_id, delta_id, "changed", "accepted_row", None),
    }

    # Reconciliation repairs these ranges, so the lake was wrong and the rows did not change.
    def copy_and_repair(app: SparkApp) -> None:
        MeasuredLake.copy(lake, app)
        ranges = [f"{number:0{RANGE_DIGITS}x}" for number in range(RANGE_COUNT)]
        store.append_audit_rows(app.catalog, "audit.repairs", [{"table_name": "events", "ranges": ranges}], app.run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake, "copy", copy_and_repair)
        assert {table for _, table, *_ in _find_changed_rows(lake)} == {"current_state_delta_stream"}

    lake.examine()
    assert "changed" not in {gap[4] for gap in lake.examine()}, "published rows count as accepted"


def _change_as_synapse_does(
    source: Database,
    backfilled_event: str,
    outlier_event: str,
    rejected_event: str,
    capped_event: str,
    purged_event: str,
) -> None:
    """Flip outliers, reject late, censor redactions, cap depths, fill columns, purge and move events, set state."""
    source.run(
        "update events set outlier = not outlier where stream_ordering < 1000 or event_id = %s", [backfilled_event]
    )
    source.run("update events set rejection_reason = 'auth_error' where event_id = %s", [rejected_event])
    source.run("update events set topological_ordering = 1 + topological_ordering where event_id = %s", [capped_event])
    source.run(
        "update event_json set json = '{}', internal_metadata = '{}' where event_id in (%s, %s)",
        [rejected_event, backfilled_event],
    )
    source.run("update room_memberships set forgotten = 1, participant = true")
    source.run("delete from event_json where event_id = %s", [purged_event])
    source.run("update events set stream_ordering = %s where event_id = %s", [source.reserve(), purged_event])
    source.run(
        "insert into ex_outlier_stream (event_stream_ordering, event_id, state_group, instance_name)"
        " select %s, event_id, 1, 'persister1' from events where event_id = %s", [source.reserve(), outlier_event],
    )  # fmt: skip


def _find_changed_rows(lake: MeasuredLake) -> Found:
    """Return the changed rows that an unpublished run finds."""
    return {gap for gap in lake.examine(publish=False) if gap[4] == "changed"}
