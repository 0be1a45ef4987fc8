"""Lets Synapse purge what its retention no longer keeps. Run by Synapse's own Python.

Arguments: a libpq URI of a database, which is written to, and a folder for scratch files.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sample.synapse_app import ask

RETENTION = {"enabled": True, "default_policy": {"min_lifetime": "1s", "max_lifetime": "1h"}}


async def purge(hs: Any) -> None:
    """One round of the job, to its end, which Synapse does not wait for."""
    begun: list[tuple[Callable[..., Awaitable[None]], tuple[Any, ...]]] = []
    begin = hs.run_as_background_process

    def keep(name: str, work: Callable[..., Awaitable[None]], *arguments: Any) -> Any:
        if name != "purge_history":
            return begin(name, work, *arguments)
        return begun.append((work, arguments))

    hs.run_as_background_process = keep
    await hs.get_pagination_handler().purge_history_for_rooms_in_range(None, None)
    for work, arguments in begun:
        await work(*arguments)


if __name__ == "__main__":
    ask(sys.argv[1], Path(sys.argv[2]), purge, retention=RETENTION)
