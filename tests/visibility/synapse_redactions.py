"""Asks Synapse's own event loader which events it shows redacted, and by what. Run by Synapse's own Python.

Arguments: a libpq URI of a database that may be written to, and a folder for scratch files. Prints a JSON object: event
id → redacting event id, for every event that Synapse loads; null where it is not redacted.
"""

import json
import sys
from pathlib import Path
from typing import Any

from synapse.storage.databases.main.events_worker import EventRedactBehaviour

from sample.synapse_app import ask


async def redactions(hs: Any) -> None:
    """Print what the loader answers for every event there is."""
    store = hs.get_datastores().main
    ids = await store.db_pool.simple_select_onecol("events", None, "event_id")
    loaded = await load(store, ids)
    print(json.dumps({event_id: event.internal_metadata.redacted_by for event_id, event in loaded.items()}))


async def load(store: Any, event_ids: list[str]) -> dict[str, Any]:
    """The events, without those on which Synapse raises."""
    try:
        return dict(
            await store.get_events(
                event_ids, redact_behaviour=EventRedactBehaviour.redact, get_prev_content=False, allow_rejected=True
            )
        )
    except Exception:  # noqa: BLE001 - whatever it raises, it shows nothing
        half = len(event_ids) // 2
        return {} if not half else await load(store, event_ids[:half]) | await load(store, event_ids[half:])


if __name__ == "__main__":
    ask(sys.argv[1], Path(sys.argv[2]), redactions)
