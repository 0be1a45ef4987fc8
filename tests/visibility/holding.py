"""The lake's answers, held against those of a real Synapse."""

from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.visibility.answers import Recorded

VIEW = "gold.event_visibility"

_DIFFERENT = """
select
    coalesce(mine.room_id, synapse.room_id) as room_id, coalesce(mine.user_id, synapse.user_id) as user_id,
    coalesce(mine.event_id, synapse.event_id) as event_id, coalesce(mine.peeking, synapse.peeking) as peeking,
    mine.outcome, mine.rule, mine.membership, synapse.outcome as right_outcome, synapse.membership as right_membership
from (
    select *, count(*) over (partition by room_id, user_id, event_id, peeking) as times from gold.event_visibility
) as mine
full outer join synapse
    on mine.room_id = synapse.room_id and mine.event_id = synapse.event_id and mine.peeking = synapse.peeking
    and mine.user_id is not distinct from synapse.user_id
where mine.times > 1 or (
    mine.outcome is distinct from synapse.outcome
    or synapse.outcome <> 'hidden' and mine.membership is distinct from synapse.membership
) and not (synapse.outcome is null and mine.event_id in (select event_id from unanswered))
"""


def bind_branch(connection: DuckDBPyConnection, settings: Settings, branch: str, run_id: str) -> str:
    """Make the view readable over tables that no release has yet; its SQL."""
    duckdb_reader.bind(connection, settings, None, ["audit.views"])
    found = connection.execute(
        "select sql from audit.views where run_id = $1 and view_name = $2 order by tried_at desc", [run_id, VIEW]
    ).fetchone()
    assert found
    duckdb_reader.bind(connection, settings, None, sorted(duckdb_reader.named_in(found[0])), branch=branch)
    connection.execute(f"create or replace view {VIEW} as {found[0]}")
    return str(found[0])


def bind_release(connection: DuckDBPyConnection, settings: Settings, release: Release) -> None:
    """Make the view readable as ``release`` has it."""
    duckdb_reader.bind(connection, settings, release, [VIEW])


def differences(connection: DuckDBPyConnection, recorded: Recorded) -> list[dict[str, Any]]:
    """Answers that are not Synapse's, one way or the other, or given twice; memberships count where an event is shown.

    Where Synapse fails instead of answering, any answer will do.
    """
    connection.register("synapse", recorded.answers)
    connection.register("unanswered", pa.table({"event_id": pa.array(recorded.errors, pa.string())}))
    found: list[dict[str, Any]] = connection.execute(_DIFFERENT).to_arrow_table().to_pylist()
    return found
