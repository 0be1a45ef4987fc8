"""Airflow's HTTP client starts and reaches this machine directly, with any proxy and TLS variables."""

import os
import urllib.request
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from requests.utils import should_bypass_proxies

from synapse_lakehouse.local.network_environment import find_unusable_variables, remove_unusable_variables

PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "All_Proxy")
GOOD = ["http://proxy:3128", "proxy:3128", "proxy", "socks5://127.0.0.1:1080", "socks5h://127.0.0.1:1080",
        "https://user:word@proxy:1", "http://[::1]:3128", "HTTP://proxy", "v1.proxy:3128", "10.0.0.1"]  # fmt: skip
BAD = ["socks4://proxy", "ftp://proxy", "://", "http://", "http://proxy:x", "http://[::1", " http://proxy",
       "http://proxy/\x01", "http://prøxy", "http://proxy:99999", "http://10.0.0.256:3128", "1.2.3.04",
       "http://[v1.a]:3128", "http://proxy/" + "a" * (1 << 16)]  # fmt: skip
TEXT = st.text(alphabet="ab1:/.[]*,-_ %@?#ü\x01\udcff", max_size=20)


def client_starts(variables: dict[str, str]) -> bool:
    """Return True if httpx starts with only ``variables`` in its environment; raise otherwise."""
    environment = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(variables)
        # Airflow's API client creates a context of its own. The certificates do not affect the proxies.
        httpx.Client(verify=False).close()
    finally:
        os.environ.clear()
        os.environ.update(environment)
    return True


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize("value", GOOD)
def test_a_usable_proxy_is_retained(name: str, value: str) -> None:
    actual = remove_unusable_variables({name: value})

    assert actual[name] == value
    assert client_starts(actual)


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize("value", BAD)
def test_an_unusable_proxy_is_removed(name: str, value: str) -> None:
    assert set(find_unusable_variables({name: value})) == {name}
    assert remove_unusable_variables({name: value}) == {}


@given(st.sampled_from(PROXIES), TEXT, TEXT)
def test_no_value_stops_airflow(name: str, proxy: str, bypassed: str) -> None:
    assert client_starts(remove_unusable_variables({name: proxy, "no_proxy": bypassed}))
    assert client_starts(remove_unusable_variables({name: f"socks5h://{proxy}", "NO_PROXY": bypassed}))


@pytest.mark.parametrize("given_no_proxy", [{}, {"no_proxy": "example.org"}, {"NO_PROXY": "[::1], fe80::/10 a:x"}])
def test_this_machine_is_reached_directly(given_no_proxy: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    actual = remove_unusable_variables(
        {"ALL_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"} | given_no_proxy
    )
    for name, value in actual.items():
        monkeypatch.setenv(name, value)

    with httpx.Client(verify=False) as client:
        assert client._transport_for_url(httpx.URL("http://127.0.0.1:8080/execution/")) is client._transport
        assert client._transport_for_url(httpx.URL("http://matrix.org/")) is not client._transport
    for host in ("127.0.0.1:8080", "localhost"):
        assert urllib.request.proxy_bypass(host)
        assert should_bypass_proxies(f"http://{host}/", None)
    assert not urllib.request.proxy_bypass("matrix.org")


@pytest.mark.parametrize(
    ("given_no_proxy", "bypassed"),
    [
        ("[::1],example.org", "::1,example.org"),
        ("fe80::/10, .example.org", ".example.org"),
        ("192.168.0.0/16 10.0.0.1:80", "192.168.0.0/16,10.0.0.1:80"),
        ("a:x,http://b,ü.de", ""),
        ("*", "*"),
    ],
)
def test_bypassed_hosts_are_retained(given_no_proxy: str, bypassed: str) -> None:
    actual = remove_unusable_variables({"https_proxy": "http://proxy", "no_proxy": given_no_proxy})

    assert actual["no_proxy"] == actual["NO_PROXY"] == ",".join(filter(None, [bypassed, "127.0.0.1", "localhost"]))


def test_unreadable_certificates_are_removed(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    values = {
        "SSL_CERT_FILE": [str(tmp_path / "gone.pem"), str(tmp_path / "empty.pem"), str(tmp_path), "\0"],
        "SSLKEYLOGFILE": [str(tmp_path / "gone" / "keys"), str(tmp_path)],
    }
    for name, unusable_values in values.items():
        for value in unusable_values:
            assert set(find_unusable_variables({name: value})) == {name}
            assert remove_unusable_variables({name: value}) == {}


def test_loadable_certificates_are_retained() -> None:
    import certifi

    variables = {"SSL_CERT_FILE": certifi.where(), "SSL_CERT_DIR": "/etc/ssl/certs", "PATH": "/bin"}
    assert remove_unusable_variables(variables) == variables
