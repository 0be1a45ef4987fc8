"""Servers on this machine: HTTP requests to them without a proxy, and the users that listen on a port."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.request import ProxyHandler, build_opener

_LISTEN: Final = "0A"
"""State TCP_LISTEN in /proc/net/tcp."""

open_url: Final = build_opener(ProxyHandler({})).open
"""Like :func:`urllib.request.urlopen`, without a proxy."""


class ListeningSocket(NamedTuple):
    """A listening TCP socket; ``address`` as the kernel writes it, in hexadecimal digits."""

    address: str
    port: int
    user_id: int
    inode: int


def list_listening_sockets() -> Iterator[ListeningSocket]:
    """Yield all listening TCP sockets of this machine, IPv4 and IPv6."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, _, state, _, _, _, user_id, _, inode, *_ = line.split()
            if state == _LISTEN:
                address, _, port = local.partition(":")
                yield ListeningSocket(address, int(port, 16), int(user_id), int(inode))


def is_own_listener(port: int) -> bool:
    """Return whether this user, and no other, listens on TCP ``port``, on any address.

    Any user of the machine can take a port that is free for a moment.
    """
    return {found.user_id for found in list_listening_sockets() if found.port == port} == {os.geteuid()}
