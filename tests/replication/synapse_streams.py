"""Asks Synapse's own streams for their rows, and lets its store forget cache entries. Run by Synapse's own Python.

Arguments: a libpq URI of a database, which is written to, a folder for scratch files, a file with the question as JSON
(``streams``: token to read up to; ``instances``; ``caches``: rows as a client receives them), and a file for the
answer: ``rows``: of each stream by instance, and ``caches``: which probes were forgotten after each row, or the error.
"""

import json
import sys
from pathlib import Path
from typing import Any

from synapse.replication.tcp.streams import STREAMS_MAP

from sample.synapse_app import ask

STEPS = {"to_device": 1, "backfill": 50}
"""Tokens per request: ``to_device`` names each recipient once per request, and ``backfill`` returns the last rows first
if there are more than its limit."""

SECTIONS = {"experimental_features": {"msc4354_enabled": True}}
"""Without it, the stream of sticky events is off."""

PROBES: dict[str, list[tuple[str, ...]]] = {
    "get_user_by_id": [("@alice:synapse.example",), ("@bob:synapse.example",)],
    "get_user_by_access_token": [("syt_secret",)],
    "get_users_in_room": [("!room:synapse.example",), ("!other:synapse.example",)],
    "get_rooms_for_user": [("@alice:synapse.example",), ("@bob:synapse.example",)],
    "get_device": [("@alice:synapse.example", "A"), ("@alice:synapse.example", "B")],
    "have_seen_event": [("!room:synapse.example", "$a"), ("!room:synapse.example", "$b")],
    "get_aliases_for_room": [("!room:synapse.example",)],
    "get_monthly_active_count": [()],
}
"""Entries by cache that are there before each row."""


async def answer(hs: Any) -> None:
    """Write the answers of Synapse's code."""
    question = json.loads(Path(sys.argv[3]).read_text())
    rows = {}
    for name, upto in question["streams"].items():
        stream = STREAMS_MAP[name](hs)
        rows[name] = [await updates(stream, instance, upto) for instance in question["instances"]]
    store = hs.get_datastores().main
    forgotten = [forget(store, token, row) for token, row in enumerate(question["caches"], start=10**9)]
    Path(sys.argv[4]).write_text(json.dumps({"rows": rows, "caches": forgotten}))


async def updates(stream: Any, instance: str, upto: int) -> list[Any]:
    """All tokens and rows of one writer, or of all writers if the stream does not distinguish them."""
    rows, after = [], 0
    while after < upto:
        end = min(after + STEPS.get(stream.NAME, upto), upto)
        page, reached, is_limited = await stream.get_updates_since(instance, after, end)
        rows += page
        after = reached if is_limited else end
    return rows


def forget(store: Any, token: int, row: list[Any]) -> Any:
    """Probes that the row makes the store forget, as ``cache`` and key, or the error that it causes."""
    for name, keys in PROBES.items():
        for key in keys:
            cache(store, name).prefill(own_key(key), ["something"])
    try:
        store.process_replication_rows("caches", "worker1", token, [STREAMS_MAP["caches"].parse_row(row)])
    except Exception as error:  # noqa: BLE001
        return repr(error)
    return [
        [name, list(key)]
        for name, keys in PROBES.items()
        for key in keys
        if cache(store, name).get_immediate(own_key(key), None) is None
    ]


def cache(store: Any, name: str) -> Any:
    return getattr(store, name).cache


def own_key(key: tuple[str, ...]) -> Any:
    """The cache's form of a key: without a tuple if it has one part."""
    return key[0] if len(key) == 1 else key


if __name__ == "__main__":
    ask(sys.argv[1], Path(sys.argv[2]), answer, **SECTIONS)
