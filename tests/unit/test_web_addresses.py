"""Where to listen, and which addresses are this host's own."""

from __future__ import annotations

import pytest

from anarchon import ConfigurationError
from anarchon.web.addresses import Address, is_loopback, names_loopback, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9100", "127.0.0.1", 9100),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("localhost:0", "localhost", 0),
        ("cron.internal:65535", "cron.internal", 65535),
        ("[::1]:9100", "::1", 9100),
        ("[::]:9100", "::", 9100),
        (":9100", "127.0.0.1", 9100),
        ("9100", "127.0.0.1", 9100),
    ],
)
def test_an_address_is_a_host_and_a_port_and_the_loopback_without_a_host(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)


NO_PORT = ["", ":", "localhost", "localhost:", "localhost:http", ":-1", ":65536", ":999999", ":9 100", ":٣", "[::1]"]
NO_HOST = [
    "::1:80",
    "[localhost]:80",
    "[::1:80",
    "http://here:80",
    "a b:80",
    "a/b:80",
    "user@host:80",
    "a\n:80",
    "]:[:80",
]


@pytest.mark.parametrize("text", [*NO_PORT, *NO_HOST])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="Expected HOST:PORT, such as 127.0.0.1:9100"):
        parse_address(text)


@pytest.mark.parametrize("text", ["127.0.0.1:9100", "[::1]:9100"])
def test_an_address_is_shown_as_it_is_written(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_the_loopback_is_known(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", [None, "", "localhost", "0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "128.0.0.1"]
)
def test_all_else_is_not_the_loopback(address: str | None) -> None:
    assert not is_loopback(address)


def test_a_host_header_is_this_host_s_own_or_not() -> None:
    assert all(map(names_loopback, [None, "localhost", "Localhost:1", "127.0.0.1:9100", "[::1]:9100", "[::1]"]))
    assert not any(map(names_loopback, ["", "worker", "10.0.0.1", "127.0.0.1.example", "[::2]", "[", "a:b:c", "::1"]))
