"""The TCP sockets on which a process and its descendants listen, from /proc."""

import subprocess
import time
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from synapse_lakehouse.local.loopback import list_listening_sockets


def descendants(pid: int) -> set[int]:
    """``pid`` and the ids of all processes below it."""
    actual = {pid}
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            actual |= descendants(int(child))
    return actual


def listening(pid: int) -> set[tuple[IPv4Address | IPv6Address, int]]:
    """Addresses and ports on which ``pid`` and its descendants listen."""
    inodes = set()
    for process in descendants(pid):
        for link in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(str(link.readlink()))
            except OSError:
                continue
    return {
        (_address(socket.address), socket.port)
        for socket in list_listening_sockets()
        if f"socket:[{socket.inode}]" in inodes
    }


def listening_until_end(process: subprocess.Popen[str]) -> set[IPv4Address | IPv6Address]:
    """Addresses on which ``process`` and its descendants listen at any time until it ends."""
    results = set()
    while process.poll() is None:
        results |= {address for address, _ in listening(process.pid)}
        time.sleep(0.5)
    return results


def _address(written: str) -> IPv4Address | IPv6Address:
    """An address as the kernel writes it: words of four bytes in the machine's order."""
    words = (bytes.fromhex(written[at : at + 8])[::-1] for at in range(0, len(written), 8))
    address = ip_address(b"".join(words))
    return getattr(address, "ipv4_mapped", None) or address
