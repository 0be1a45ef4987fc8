"""Asks Synapse's own event loader which events it shows redacted, and by what. Run by Synapse's own Python.

Arguments: a libpq URI of a database that may be written to, and a folder for scratch files. Prints a JSON object: event
id → redacting event id, for every event that Synapse loads; null where it is not redacted.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from synapse.app import homeserver
from synapse.config.homeserver import HomeServerConfig
from synapse.storage.databases.main.events_worker import EventRedactBehaviour
from twisted.internet import defer, reactor

CONFIG = {
    "server_name": "synapse.example",
    "report_stats": False,
    "listeners": [],
    "trusted_key_servers": [],
    "enable_registration": False,
    "background_updates": {"background_update_duration_ms": 1},
    "registration_shared_secret": "unused",
    "macaroon_secret_key": "unused",
    "form_secret": "unused",
}


async def redactions(hs: Any) -> dict[str, str | None]:
    """What the loader answers for every event there is."""
    store = hs.get_datastores().main
    ids = await store.db_pool.simple_select_onecol("events", None, "event_id")
    loaded = await store.get_events(
        ids, redact_behaviour=EventRedactBehaviour.redact, get_prev_content=False, allow_rejected=True
    )
    return {event_id: event.internal_metadata.redacted_by for event_id, event in loaded.items()}


def main(dsn: str, scratch: Path) -> None:
    database = {"name": "psycopg2", "args": {"dsn": dsn, "cp_min": 1, "cp_max": 2}}
    own = {"signing_key_path": str(scratch / "key"), "media_store_path": str(scratch / "media"), "database": database}
    path = scratch / "homeserver.yaml"
    path.write_text(yaml.safe_dump(CONFIG | own))
    config = HomeServerConfig.load_or_generate_config("", ["-c", str(path), "--generate-keys"])
    config = HomeServerConfig.load_config("", ["-c", str(path)])
    hs = homeserver.SynapseHomeServer(config.server.server_name, config=config)
    hs.setup()

    def ask() -> None:
        asked = defer.ensureDeferred(redactions(hs))
        asked.addCallback(lambda answer: print(json.dumps(answer)))
        asked.addErrback(lambda failure: failure.printTraceback(sys.stderr))
        asked.addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(ask)
    reactor.run()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
