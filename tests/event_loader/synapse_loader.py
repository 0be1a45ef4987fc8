"""Load events with Synapse's own event loader. Synapse's Python runs this program.

Arguments: the libpq URI of a database that Synapse may change, a folder for scratch files, and a file with one event ID
a line. The program replaces each line by JSON: ``null`` if the loader returns no event, ``false`` if it raises an
error, else the event's fields in the order of ``LoadedEvent``, without the hash verdict.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from psycopg2.errors import InFailedSqlTransaction  # type: ignore[import-untyped]
from synapse.api.room_versions import EventFormatVersions

from sample.synapse_app import run_in_synapse


async def load_event(store: Any, event_id: str) -> Any:
    """Return the loader's result for an event ID, as the file contains it."""
    try:
        loaded = (await store._get_events_from_db([event_id])).get(event_id)
    except InFailedSqlTransaction:
        # A statement for the event before failed on this connection.
        return await load_event(store, event_id)
    except Exception:  # noqa: BLE001 - the loader raises many kinds of errors
        return False
    return loaded and _fields(loaded.event)


def _fields(event: Any) -> list[Any]:
    metadata, unsigned, state_key = event.internal_metadata, event.unsigned, event.get_state_key()
    flags = [
        metadata.is_soft_failed(), metadata.is_out_of_band_membership(), metadata.need_to_check_redaction(),
        metadata.is_redacted(), metadata.policy_server_spammy,
    ]  # fmt: skip
    redacts = event.redacts if event.type == "m.room.redaction" and isinstance(event.redacts, str) else None
    has_auth_events = state_key is not None and event.format_version != EventFormatVersions.ROOM_VMSC4242
    references = [len(set(event.prev_event_ids())), len(set(event.auth_event_ids())) if has_auth_events else None]
    fields = [event.type, event.sender, event.room_id, state_key, redacts, *references]
    if state_key is None:
        return [None, *flags, *fields, None, None, None, False, None, None, None]
    previous = unsigned.get("prev_content")
    replaced = previous if isinstance(previous, dict) else {}
    content = dict(event.content)

    def value(content: dict[str, Any], key: str, is_relevant: bool = True) -> str | None:
        field = content.get(key) if is_relevant else None
        return field if field is None or isinstance(field, str) else json.dumps(field)

    return [
        None, *flags, *fields, unsigned.get("replaces_state"), value(replaced, "membership"),
        value(replaced, "history_visibility"), "prev_content" in unsigned and "prev_sender" in unsigned,
        value(content, "membership", event.type == "m.room.member"),
        value(content, "history_visibility", event.type == "m.room.history_visibility"),
        value(content, "join_rule", event.type == "m.room.join_rules" and state_key == ""),
    ]  # fmt: skip


async def replace_lines(hs: Any, file: Path) -> None:
    """Replace each line of the file by the result of its event ID."""
    store = hs.get_datastores().main
    # A dedicated thread would reuse its connection after a failed statement.
    store.USE_DEDICATED_DB_THREADS_FOR_EVENT_FETCHING = False
    logging.disable(logging.CRITICAL)
    with file.with_suffix(".results").open("w") as out:
        for event_id in file.read_text().splitlines():
            print(json.dumps(await load_event(store, event_id)), file=out)
    file.with_suffix(".results").replace(file)


if __name__ == "__main__":
    features = {"msc1767_enabled": True, "msc4242_enabled": True}
    run_in_synapse(
        sys.argv[1], Path(sys.argv[2]), lambda hs: replace_lines(hs, Path(sys.argv[3])), experimental_features=features
    )
