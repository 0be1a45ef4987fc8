"""Start Synapse's HomeServer on a database, and run a coroutine with it. Only Synapse's Python imports this module."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml
from synapse.app import homeserver
from synapse.config.homeserver import HomeServerConfig
from synapse.logging.context import LoggingContext
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


def run_in_synapse(dsn: str, scratch: Path, coroutine: Callable[[Any], Awaitable[None]], **sections: object) -> None:
    """Start Synapse on the database ``dsn`` and run ``coroutine(homeserver)``. Synapse changes the database.

    :param sections: sections of homeserver.yaml, in addition to :data:`CONFIG`.
    :raises SystemExit: if the coroutine raises an error. Its traceback is printed.
    """
    database = {"name": "psycopg2", "args": {"dsn": dsn, "cp_min": 1, "cp_max": 2}}
    paths = {"signing_key_path": str(scratch / "key"), "media_store_path": str(scratch / "media")}
    path = scratch / "homeserver.yaml"
    path.write_text(yaml.safe_dump(CONFIG | paths | {"database": database} | sections))
    HomeServerConfig.load_or_generate_config("", ["-c", str(path), "--generate-keys"])
    config = HomeServerConfig.load_config("", ["-c", str(path)])
    hs = homeserver.SynapseHomeServer(config.server.server_name, config=config)
    hs.setup()
    failures: list[Any] = []

    async def within_context() -> None:
        with _create_context(hs.hostname):
            await coroutine(hs)

    def start() -> None:
        result = defer.ensureDeferred(within_context())
        result.addErrback(failures.append)
        result.addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(start)
    reactor.run()
    for failure in failures:
        failure.printTraceback(sys.stderr)
        sys.exit(1)


def _create_context(server_name: str) -> Any:
    try:
        return LoggingContext(name="coroutine", server_name=server_name)
    except TypeError:  # in earlier releases, a context has no server name
        return LoggingContext(name="coroutine")
