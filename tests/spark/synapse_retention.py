"""Purge expired events with Synapse's retention job. Synapse's own Python runs this program.

Arguments: the libpq URI of a database, which the program writes to, and a folder for scratch files.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sample.synapse_app import run_in_synapse

RETENTION = {"enabled": True, "default_policy": {"min_lifetime": "1s", "max_lifetime": "1h"}}


async def purge(hs: Any) -> None:
    """Run one round of the job, and wait for its purges, which Synapse runs in the background."""
    purges: list[tuple[Callable[..., Awaitable[None]], tuple[Any, ...]]] = []
    run_in_background = hs.run_as_background_process

    def collect_purges(name: str, work: Callable[..., Awaitable[None]], *arguments: Any) -> Any:
        if name != "purge_history":
            return run_in_background(name, work, *arguments)
        return purges.append((work, arguments))

    hs.run_as_background_process = collect_purges
    await hs.get_pagination_handler().purge_history_for_rooms_in_range(None, None)
    for work, arguments in purges:
        await work(*arguments)


if __name__ == "__main__":
    run_in_synapse(sys.argv[1], Path(sys.argv[2]), purge, retention=RETENTION)
