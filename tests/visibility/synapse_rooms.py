"""Compute room properties with Synapse's own statistics handler. Synapse's Python runs this program.

Arguments: the libpq URI of a database that Synapse may change, and a folder for scratch files. The program prints a
JSON object: room ID → row of ``room_stats_state``.
"""

import json
import sys
from pathlib import Path
from typing import Any

from synapse.storage.databases.main.state_deltas import StateDelta

from sample.synapse_app import run_in_synapse

COLUMNS = ("name", "canonical_alias", "join_rules", "history_visibility", "encryption", "guest_access", "room_type")


NEWEST = 2**40


async def properties(hs: Any) -> None:
    """Process all current state as changes, and print the rows that Synapse stores."""
    store = hs.get_datastores().main
    state = await store.db_pool.execute(
        "state",
        "select room_id, type, event_id from current_state_events where state_key = '' and type <> 'm.room.member'",
    )
    await store.db_pool.execute("forget", "delete from room_stats_state returning room_id")
    await hs.get_stats_handler()._handle_deltas(
        [StateDelta(NEWEST, room_id, type_, "", event_id, None) for room_id, type_, event_id in state]
    )
    rows = await store.db_pool.execute("properties", f"select room_id, {', '.join(COLUMNS)} from room_stats_state")
    print(json.dumps({room_id: dict(zip(COLUMNS, values, strict=True)) for room_id, *values in rows}))


if __name__ == "__main__":
    run_in_synapse(sys.argv[1], Path(sys.argv[2]), properties)
