"""Send HTTP requests to servers on this machine without a proxy, and find the users that listen on a port."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.request import ProxyHandler, build_opener

_LISTEN: Final = "0A"
"""The state TCP_LISTEN in /proc/net/tcp."""

open_url: Final = build_opener(ProxyHandler({})).open
"""Like :func:`urllib.request.urlopen`, but without a proxy."""


class ListeningSocket(NamedTuple):
    """A listening TCP socket. ``address`` is in the kernel's notation, in hexadecimal digits."""

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
    """Return whether only this user listens on TCP ``port``, on any address.

    Another user of the machine can take the port in a moment when it is free.
    """
    return {listener.user_id for listener in list_listening_sockets() if listener.port == port} == {os.geteuid()}
