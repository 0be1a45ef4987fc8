"""Read rows with Synapse's own streams, and invalidate cache entries of its store. Synapse's own Python runs it.

Arguments: the libpq URI of a database, which the program writes to; a folder for scratch files; a JSON file with the
request (``streams``: last token to read; ``instances``; ``caches``: rows as a client receives them); and a file for
the output (``rows`` of each stream by instance; ``caches``: for each row, the dropped probes or the error).
"""

import json
import sys
from pathlib import Path
from typing import Any

from synapse.replication.tcp.streams import STREAMS_MAP

from sample.synapse_app import run_in_synapse

STEPS = {"to_device": 1, "backfill": 50}
"""Tokens per request: ``to_device`` names each recipient once per request, and ``backfill`` returns the last rows first
if there are more than its limit."""

SECTIONS = {"experimental_features": {"msc4354_enabled": True}}
"""Without this setting, the stream of sticky events is off."""

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
"""Entries that each cache contains before each row."""


async def write_output(hs: Any) -> None:
    """Write the rows and the dropped probes of Synapse's code."""
    request = json.loads(Path(sys.argv[3]).read_text())
    rows = {}
    for name, upto in request["streams"].items():
        stream = STREAMS_MAP[name](hs)
        rows[name] = [await read_updates(stream, instance, upto) for instance in request["instances"]]
    store = hs.get_datastores().main
    dropped_probes = [invalidate(store, token, row) for token, row in enumerate(request["caches"], start=10**9)]
    Path(sys.argv[4]).write_text(json.dumps({"rows": rows, "caches": dropped_probes}))


async def read_updates(stream: Any, instance: str, upto: int) -> list[Any]:
    """Return all tokens and rows of one writer, or of all writers if the stream does not distinguish them."""
    rows, after = [], 0
    while after < upto:
        end = min(after + STEPS.get(stream.NAME, upto), upto)
        page, reached, is_limited = await stream.get_updates_since(instance, after, end)
        rows += page
        after = reached if is_limited else end
    return rows


def invalidate(store: Any, token: int, row: list[Any]) -> Any:
    """Return the probes that the store drops for the row, as cache and key, or the error that the row causes."""
    for name, keys in PROBES.items():
        for key in keys:
            get_cache(store, name).prefill(cache_key(key), ["something"])
    try:
        store.process_replication_rows("caches", "worker1", token, [STREAMS_MAP["caches"].parse_row(row)])
    except Exception as error:  # noqa: BLE001
        return repr(error)
    return [
        [name, list(key)]
        for name, keys in PROBES.items()
        for key in keys
        if get_cache(store, name).get_immediate(cache_key(key), None) is None
    ]


def get_cache(store: Any, name: str) -> Any:
    return getattr(store, name).cache


def cache_key(key: tuple[str, ...]) -> Any:
    """Return the cache's form of a key: without a tuple if it has one part."""
    return key[0] if len(key) == 1 else key


if __name__ == "__main__":
    run_in_synapse(sys.argv[1], Path(sys.argv[2]), write_output, **SECTIONS)
