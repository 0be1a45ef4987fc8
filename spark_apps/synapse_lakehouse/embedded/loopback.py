"""HTTP to servers of this machine, which no proxy serves and no proxy may see."""

from typing import Final
from urllib.request import ProxyHandler, build_opener

open_url: Final = build_opener(ProxyHandler({})).open
"""As :func:`urllib.request.urlopen`, without a proxy."""
