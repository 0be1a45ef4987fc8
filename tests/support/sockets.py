"""The TCP sockets on which a process and its descendants listen."""

import subprocess
import time
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

import psutil


def descendants(pid: int) -> set[int]:
    """Return ``pid`` and the IDs of all of its descendants."""
    with suppress(psutil.NoSuchProcess):
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    return {pid}


def listening(pid: int) -> set[tuple[IPv4Address | IPv6Address, int]]:
    """Return the addresses and ports on which ``pid`` and its descendants listen."""
    addresses = set()
    for process in descendants(pid):
        with suppress(psutil.Error):
            for socket in psutil.Process(process).net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN:
                    address = ip_address(socket.laddr.ip)
                    addresses.add((getattr(address, "ipv4_mapped", None) or address, socket.laddr.port))
    return addresses


def listening_until_end(process: subprocess.Popen[str]) -> set[IPv4Address | IPv6Address]:
    """Wait until ``process`` ends; return all addresses on which it or its descendants listened."""
    results = set()
    while process.poll() is None:
        results |= {address for address, _ in listening(process.pid)}
        time.sleep(0.5)
    return results
