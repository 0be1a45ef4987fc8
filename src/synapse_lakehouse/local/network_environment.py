"""Remove proxy and TLS variables with values that would stop Airflow.

Airflow sends requests to itself through httpx, which fails on invalid values that other programs ignore.
"""

import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final
from urllib.parse import urlsplit

_LOCAL: Final = ("127.0.0.1", "localhost")
_SCHEMES: Final = {"http", "https", "socks5", "socks5h"}
_NAME: Final = re.compile(r"(\*?\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(:\d{1,5})?")
_FOUR_NUMBERS: Final = re.compile(r"\d+(\.\d+){3}")
_MAX_URL_LENGTH: Final = 1 << 16


def remove_unusable_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return ``variables`` without unusable variables. Requests to this machine bypass all proxies."""
    excluded = find_unusable_variables(variables)
    usable = {name: value for name, value in variables.items() if name not in excluded}
    if any(value and (_is_proxy(name) or name.lower() == "no_proxy") for name, value in usable.items()):
        bypassed_hosts = [
            entry
            for name, value in usable.items()
            if name.lower() == "no_proxy"
            for entry in _parse_bypassed_hosts(value)
        ]
        usable = {name: value for name, value in usable.items() if name.lower() != "no_proxy"}
        bypassed = ",".join(dict.fromkeys([*bypassed_hosts, *_LOCAL]))
        usable |= {"no_proxy": bypassed, "NO_PROXY": bypassed}
    return usable


def find_unusable_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that would stop Airflow, each with the reason."""
    checks = {name: _check_proxy for name in variables if _is_proxy(name)} | _FILES
    reasons = {name: check(variables[name]) for name, check in checks.items() if variables.get(name)}
    return {name: reason for name, reason in reasons.items() if reason}


def _is_proxy(name: str) -> bool:
    return name.lower() in {"http_proxy", "https_proxy", "all_proxy"}


def _check_proxy(value: str) -> str:
    if not (value.isascii() and value.isprintable()) or " " in value:
        return "it contains a character that is invalid in a URL"
    url = value if "://" in value else f"http://{value}"
    if len(url) > _MAX_URL_LENGTH:
        return f"it has more than {_MAX_URL_LENGTH:,} characters"
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != -1
        if "[" in parts.netloc:
            IPv6Address(parts.hostname or "")
        elif _FOUR_NUMBERS.fullmatch(parts.hostname or ""):
            IPv4Address(parts.hostname or "")
    except ValueError:
        return "its host or port is malformed"
    if parts.scheme not in _SCHEMES:
        return f"its scheme is none of {', '.join(sorted(_SCHEMES))}"
    return "" if has_host else "it names no host"


def _parse_bypassed_hosts(value: str) -> list[str]:
    """Return the entries of ``no_proxy`` that all programs understand. Other entries are omitted."""
    entries = [entry for entry in re.split(r"[,\s]+", value) if entry]
    return [entry for entry in map(_format_entry, entries) if entry]


def _format_entry(entry: str) -> str:
    with suppress(ValueError):
        return str(IPv6Address(entry.removeprefix("[").removesuffix("]")))
    with suppress(ValueError):
        return entry if ip_network(entry, strict=False).version == 4 else ""
    return entry if entry == "*" or _NAME.fullmatch(entry) else ""


def _check_loading(load: Callable[[ssl.SSLContext, str], object]) -> Callable[[str], str]:
    def check(value: str) -> str:
        try:
            load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), value)
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error)
        return ""

    return check


_FILES: Final[dict[str, Callable[[str], str]]] = {
    "SSL_CERT_FILE": _check_loading(lambda context, file: context.load_verify_locations(cafile=file)),
    "SSL_CERT_DIR": _check_loading(lambda context, folder: context.load_verify_locations(capath=folder)),
    "SSLKEYLOGFILE": _check_loading(lambda context, file: setattr(context, "keylog_filename", file)),
}
