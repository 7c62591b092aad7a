"""Reads the URL of a Redis server into connection options. No message repeats any part of it that could be a password.

A password with ``@``, ``/``, ``#``, ``?`` or ``:`` in it may land anywhere when a URL is taken apart, even where the
port or an option's name is expected. So a part is named in a message, but never shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from anarchon.errors import ConfigurationError

__all__ = ["ESCAPE", "MOST_REPLICAS", "RedisAddress", "read_redis_url"]

#: What to do about a password that a URL cannot hold as it is.
ESCAPE = "In a user name or password, write '@' as %40, '/' as %2F, '#' as %23, '?' as %3F, ':' as %3A and '%' as %25."

#: Nobody waits for more; whoever writes 500 thinks of milliseconds.
MOST_REPLICAS = 100


@dataclass(frozen=True)
class RedisAddress:
    """Where a server is and how to log in to it.

    Attributes:
        text: scheme, host, port and database, for people; never who logs in.
        place: ``host:port`` or the socket's path, for messages.
        options: what redis-py's connections are made with.
        secrets: what must appear in no message.
        wait_replicas: see ``RedisBackend``; None where the URL does not say.
    """

    text: str
    place: str
    tls: bool = False
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    wait_replicas: int | None = None


def _seconds(text: str) -> float:
    number = float(text)
    if not (math.isfinite(number) and number > 0):
        raise ValueError
    return number


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError
    return int(text)


def _count(text: str) -> int:
    if _number(text) == 0:
        raise ValueError
    return _number(text)


def _replicas(text: str) -> int:
    if _number(text) > MOST_REPLICAS:
        raise ValueError
    return _number(text)


def _truth(text: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]


def _verification(text: str) -> str:
    if text not in ("none", "optional", "required"):
        raise ValueError
    return text


# How each option is read, and what is expected of it.
_OPTIONS: dict[str, tuple[Callable[[str], Any], str]] = {
    "db": (_number, "a database number"),
    "username": (str, "text"),
    "password": (str, "text"),
    "client_name": (str, "text"),
    "socket_timeout": (_seconds, "a number of seconds above zero"),
    "socket_connect_timeout": (_seconds, "a number of seconds above zero"),
    "socket_keepalive": (_truth, "true or false"),
    "max_connections": (_count, "a number above zero"),
    "wait_replicas": (_replicas, f"a number of replicas, at most {MOST_REPLICAS}"),
}
_TLS_OPTIONS: dict[str, tuple[Callable[[str], Any], str]] = {
    "ssl_cert_reqs": (_verification, "none, optional or required"),
    "ssl_ca_certs": (str, "a path"),
    "ssl_ca_path": (str, "a path"),
    "ssl_certfile": (str, "a path"),
    "ssl_keyfile": (str, "a path"),
    "ssl_password": (str, "text"),
    "ssl_check_hostname": (_truth, "true or false"),
}


def read_redis_url(url: object) -> RedisAddress:
    """Reads ``redis://[[user]:password@]host[:port][/db][?option=value]``, ``rediss://`` (TLS) or ``unix:///path``.

    Raises:
        ConfigurationError: what is wrong with it, in words that repeat nothing of it.
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"The Redis URL must be text, not {type(url).__name__}.")
    if any(character.isspace() or not character.isprintable() for character in url):
        raise ConfigurationError("The Redis URL has white space or a control character in it.")
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in ("redis", "rediss", "unix"):
        raise ConfigurationError("The Redis URL must begin with redis://, rediss:// (for TLS) or unix:// (a socket).")
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None  # Outside this clause, so that what urllib says, which may quote the password, is not chained.
    if parts is None:
        raise ConfigurationError(f"The Redis URL's host cannot be read. {ESCAPE}")
    if "#" in url:
        raise ConfigurationError(f"The Redis URL has a '#' in it. {ESCAPE}")
    if "@" in parts.path or "@" in parts.query:
        raise ConfigurationError(f"The Redis URL has an '@' after its host. {ESCAPE}")
    options = _query(parts, tls=scheme == "rediss") | _login(parts)
    wait_replicas = options.pop("wait_replicas", None)
    place = _socket(parts, options) if scheme == "unix" else _host(parts, options)
    secrets = {options[name] for name in ("password", "ssl_password") if options.get(name)}
    secrets |= {parts.password} if parts.password else set()
    return RedisAddress(
        text=f"{scheme}://{place}?db={options['db']}" if scheme == "unix" else f"{scheme}://{place}/{options['db']}",
        place=place,
        tls=scheme == "rediss",
        options=options,
        secrets=tuple(secrets),
        wait_replicas=wait_replicas,
    )


def _login(parts: SplitResult) -> dict[str, Any]:
    login = {"username": parts.username, "password": parts.password}
    return {name: unquote(value) for name, value in login.items() if value}


def _query(parts: SplitResult, tls: bool) -> dict[str, Any]:
    known = _OPTIONS | (_TLS_OPTIONS if tls else {})
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        pairs = [("", "")]
    options: dict[str, Any] = {}
    for name, value in pairs:
        if name not in known or name in options:
            # Not shown: after a '?' in a password, the rest of the password stands here.
            raise ConfigurationError(
                f"The Redis URL has an option that is not known, or given twice. Known are {', '.join(sorted(known))}; "
                f"retries are anarchon's own. {ESCAPE}"
            )
        read, expected = known[name]
        try:
            options[name] = read(value)
        except (ValueError, KeyError):
            options[name] = None
        if options[name] is None:
            raise ConfigurationError(f"The Redis URL's option {name} must be {expected}.")
    return options


def _socket(parts: SplitResult, options: dict[str, Any]) -> str:
    if parts.hostname or not parts.path.strip("/"):
        raise ConfigurationError("A unix:// URL needs three slashes and a path, such as unix:///run/redis/redis.sock.")
    options.setdefault("db", 0)
    options["path"] = unquote(parts.path)
    return str(options["path"])


def _host(parts: SplitResult, options: dict[str, Any]) -> str:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 or (port is None and parts.netloc.endswith(":")):
        raise ConfigurationError(f"The Redis URL's port must be a number from 1 to 65535. {ESCAPE}")
    try:
        database = _number(parts.path.strip("/") or "0")
    except ValueError:
        database = -1
    if database < 0:
        raise ConfigurationError(f"After the Redis URL's host, only a database number may follow. {ESCAPE}")
    options.setdefault("db", database)
    options["host"] = unquote(parts.hostname or "localhost")
    if not options["host"].isprintable() or " " in options["host"]:
        raise ConfigurationError("The Redis URL's host has white space or a control character in it.")
    options["port"] = port or 6379
    host = f"[{options['host']}]" if ":" in options["host"] else options["host"]
    return f"{host}:{options['port']}"
