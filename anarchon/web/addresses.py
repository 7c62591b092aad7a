"""Where to listen, and which addresses are this host's own."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from anarchon.errors import ConfigurationError, shown

__all__ = ["Address", "is_loopback", "names_loopback", "parse_address"]

#: Where nothing else is said, nobody but this host is served.
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Address:
    """A host, by name or number, and a TCP port; 0: one that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Reads ``HOST:PORT``; ``:PORT`` and ``PORT`` alone are of the loopback, and an IPv6 address stands in brackets.

    Raises:
        ConfigurationError: none of these, or a port over 65535.
    """
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    fits = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535
    # A colon in the host is part of an IPv6 address, which ends nobody knows where without its brackets.
    if not fits or (":" in bare) != (bare != host) or not bare.isprintable() or set(bare) & set("/@[] "):
        raise ConfigurationError(f"Expected HOST:PORT, such as 127.0.0.1:9100 or [::1]:9100, not {shown(text)}.")
    return Address(bare or _LOOPBACK, int(port))


def is_loopback(address: str | None) -> bool:
    """Whether that is an IP address by which this host reaches itself, and nobody else reaches it."""
    try:
        number = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    # How a socket that serves both families shows a client of IPv4.
    mapped = getattr(number, "ipv4_mapped", None)
    return bool((mapped or number).is_loopback)


def names_loopback(host: str | None) -> bool:
    """Whether a ``Host`` header is what a client sends that was told to ask this host itself; one without it will do.

    A page from elsewhere can make its reader's browser connect here by letting its own name point to 127.0.0.1 (DNS
    rebinding), and would be let read the answer; but the browser then sends that name.
    """
    if host is None:
        return True
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name == "localhost" or is_loopback(name)
