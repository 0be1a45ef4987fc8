"""Started by Synapse's own Python: runs a module of it in which server names resolve to ports of this machine.

``SYNAPSE_PEERS`` is JSON: server name → TLS port on 127.0.0.1. Any other host name resolves to nothing, so that
nothing leaves the machine.
"""

import json
import os
import runpy
import socket
import sys
from typing import Any

_PEERS: dict[str, int] = json.loads(os.environ["SYNAPSE_PEERS"])
_resolve = socket.getaddrinfo


def resolve(host: Any, port: Any, *options: Any, **more: Any) -> list[Any]:
    """``socket.getaddrinfo`` of a network that consists of the peers."""
    name = host.decode() if isinstance(host, bytes) else host
    if name in _PEERS:
        return _resolve("127.0.0.1", _PEERS[name], *options, **more)
    if name in ("127.0.0.1", "localhost", None):
        return _resolve(host, port, *options, **more)
    raise socket.gaierror(socket.EAI_NONAME, f"{name} is not a peer")


if __name__ == "__main__":
    # Before the import of Twisted, which copies the function.
    socket.getaddrinfo = resolve
    module = sys.argv[1]
    del sys.argv[1]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
