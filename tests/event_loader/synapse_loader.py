"""Asks Synapse's own event loader what it makes of rows of ``event_json``. Run by Synapse's own Python.

Arguments: a libpq URI of a database that may be written to, a folder for scratch files, and the file to write, which
has the event ids to ask for, one a line. Its lines are replaced by answers in JSON: ``null`` where the loader has no
event, ``false`` where it raises, or the event's fields in the order of ``LoadedEvent``, without the hashes' verdicts.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from psycopg2.errors import InFailedSqlTransaction  # type: ignore[import-untyped]
from synapse.api.room_versions import EventFormatVersions

from sample.synapse_app import ask


async def answer(store: Any, event_id: str) -> Any:
    """What the loader makes of the row."""
    try:
        loaded = (await store._get_events_from_db([event_id])).get(event_id)
    except InFailedSqlTransaction:
        # The connection is still the one on which PostgreSQL refused a statement for the event before.
        return await answer(store, event_id)
    except Exception:  # noqa: BLE001 - whatever it raises is its answer
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

    def value(of: dict[str, Any], key: str, counts: bool = True) -> str | None:
        actual = of.get(key) if counts else None
        return actual if actual is None or isinstance(actual, str) else json.dumps(actual)

    return [
        None, *flags, *fields, unsigned.get("replaces_state"), value(replaced, "membership"),
        value(replaced, "history_visibility"), "prev_content" in unsigned and "prev_sender" in unsigned,
        value(content, "membership", event.type == "m.room.member"),
        value(content, "history_visibility", event.type == "m.room.history_visibility"),
        value(content, "join_rule", event.type == "m.room.join_rules" and state_key == ""),
    ]  # fmt: skip


async def answers(hs: Any, file: Path) -> None:
    """Put an answer in place of every line."""
    store = hs.get_datastores().main
    # Otherwise a thread waits for more questions on a connection on which PostgreSQL may have refused a statement.
    store.USE_DEDICATED_DB_THREADS_FOR_EVENT_FETCHING = False
    logging.disable(logging.CRITICAL)
    with file.with_suffix(".answers").open("w") as out:
        for event_id in file.read_text().splitlines():
            print(json.dumps(await answer(store, event_id)), file=out)
    file.with_suffix(".answers").replace(file)


if __name__ == "__main__":
    trials = {"msc1767_enabled": True, "msc4242_enabled": True}
    ask(sys.argv[1], Path(sys.argv[2]), lambda hs: answers(hs, Path(sys.argv[3])), experimental_features=trials)
