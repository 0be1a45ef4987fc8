"""HTTP to servers of this machine, which no proxy serves and no proxy may see; and whose servers they are."""

import os
from pathlib import Path
from typing import Final
from urllib.request import ProxyHandler, build_opener

_LISTENING: Final = "0A"

open_url: Final = build_opener(ProxyHandler({})).open
"""As :func:`urllib.request.urlopen`, without a proxy."""


def is_own_listener(port: int) -> bool:
    """Whether this user listens on TCP ``port``, and nobody else on any address.

    A port that is free for a moment is open to every user of the machine.
    """
    tables = [table for name in ("tcp", "tcp6") if (table := Path("/proc/net", name)).exists()]
    sockets = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    owners = {
        int(uid)
        for _, local, _, state, _, _, _, uid, *_ in sockets
        if state == _LISTENING and int(local.rpartition(":")[2], 16) == port
    }
    return owners == {os.geteuid()}
