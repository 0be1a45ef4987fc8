"""Run a module of Synapse with server names that resolve to ports of this machine. Synapse's Python runs this program.

``SYNAPSE_PEERS`` is JSON: server name → TLS port on 127.0.0.1. Other host names do not resolve, so no request leaves
the machine.
"""

import json
import os
import runpy
import socket
import sys
from typing import Any

_PEERS: dict[str, int] = json.loads(os.environ["SYNAPSE_PEERS"])
_resolve = socket.getaddrinfo


def resolve(host: Any, port: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Return the result of ``socket.getaddrinfo`` for a peer or for this machine."""
    name = host.decode() if isinstance(host, bytes) else host
    if name in _PEERS:
        return _resolve("127.0.0.1", _PEERS[name], *args, **kwargs)
    if name in ("127.0.0.1", "localhost", None):
        return _resolve(host, port, *args, **kwargs)
    raise socket.gaierror(socket.EAI_NONAME, f"{name} is not a peer")


if __name__ == "__main__":
    # Twisted copies the function when it is imported.
    socket.getaddrinfo = resolve
    module = sys.argv[1]
    del sys.argv[1]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
