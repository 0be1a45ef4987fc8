"""Load all events with Synapse's own event loader, and print their redactions. Synapse's Python runs this program.

Arguments: the libpq URI of a database that Synapse may change, and a folder for scratch files. The program prints a
JSON object: ID of each loaded event → ID of the redaction, or null if it is not redacted.
"""

import json
import sys
from pathlib import Path
from typing import Any

from synapse.storage.databases.main.events_worker import EventRedactBehaviour

from sample.synapse_app import run_in_synapse


async def redactions(hs: Any) -> None:
    """Print the redactions of all events."""
    store = hs.get_datastores().main
    ids = await store.db_pool.simple_select_onecol("events", None, "event_id")
    loaded = await load(store, ids)
    print(json.dumps({event_id: event.internal_metadata.redacted_by for event_id, event in loaded.items()}))


async def load(store: Any, event_ids: list[str]) -> dict[str, Any]:
    """Return the events, except events for which Synapse raises an error."""
    try:
        return dict(
            await store.get_events(
                event_ids, redact_behaviour=EventRedactBehaviour.redact, get_prev_content=False, allow_rejected=True
            )
        )
    except Exception:  # noqa: BLE001 - the loader raises many kinds of errors
        half = len(event_ids) // 2
        return {} if not half else await load(store, event_ids[:half]) | await load(store, event_ids[half:])


if __name__ == "__main__":
    run_in_synapse(sys.argv[1], Path(sys.argv[2]), redactions)
