"""Serves the worker endpoint beside the jobs of this process, on waitress and on threads of its own.

Guarantees:

- The port is taken before any job runs, and answered on when they have started; elsewhere than on the loopback
  nothing is served without a token.
- No client can hold a thread by being slow: waitress hands a request over when it is there as a whole. One that is not
  after half a minute, or that is larger than a request can be, is closed.
- ``close`` ends every connection, socket and thread, but for a thread whose run goes on.
- The child of a fork, such as a job's ``multiprocessing`` makes, keeps neither the port nor a connection: it may
  outlive this process, whose callers would wait for ever then, and whose successor would find the port taken.
"""

from __future__ import annotations

import logging
import socket
import threading
import weakref
from typing import Any

from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.server import create_server
from waitress.task import ErrorTask

from anarchon.clock import SystemClock
from anarchon.durations import Duration, parse_duration
from anarchon.errors import ConfigurationError
from anarchon.forks import in_child
from anarchon.scheduler import Scheduler
from anarchon.threads import Threads
from anarchon.web.addresses import Address, is_loopback, parse_address
from anarchon.web.answers import refusal
from anarchon.web.endpoint import HEADERS, WorkerEndpoint, to_json
from anarchon.web.tokens import TOKEN_VARIABLE

__all__ = ["WorkerServer"]

_logger = logging.getLogger("anarchon")

#: Twice as many threads as may wait for runs: questions, which are short, find one.
_THREADS = 8
_RUNS = 4

_LIMITS: dict[str, Any] = {
    # More connections wait in the kernel's queue.
    "connection_limit": 100,
    # A job's name has 200 characters, which are at most 2400 percent-encoded bytes.
    "max_request_header_size": 16_384,
    "max_request_body_size": 65_536,
    # Seconds until an idle connection is closed, and between two looks for such.
    "channel_timeout": 30,
    "cleanup_interval": 5,
}

#: How long the loop waits at a time for something to happen. waitress looks for idle connections after each wait.
_LOOP_S = 1

#: How long close waits for its threads, once their work is done.
_JOIN_MS = 5_000

_OWN_ERRORS = {400: "bad-request", 413: "body-too-large", 431: "headers-too-large", 501: "not-implemented"}


class WorkerServer:
    """Listens from its making on, answers from ``start`` to ``close``.

    Args:
        http: ``HOST:PORT``; port 0 for any that is free.
        token: as for ``WorkerEndpoint``.

    Attributes:
        url: where it answers, with the port that it has.
        whom: who is answered, in words.

    Raises:
        ConfigurationError: the address is none, cannot be had, or others than this host reach it and there is no token.
    """

    def __init__(self, scheduler: Scheduler, http: str, token: str | None = None) -> None:
        self._endpoint = WorkerEndpoint(scheduler, token, max_runs=_RUNS, until_stopped=True)
        self._listener = _listen(parse_address(http), guarded=token is not None)
        host, port = self._listener.getsockname()[:2]
        self.url = f"http://{Address(host, port)}"
        self.whom = (
            "whoever has the token" if token else "this host's questions (there is no token, so it runs nothing)"
        )
        self._clock = SystemClock()
        self._threads = Threads(self._clock)
        # Also waitress's name for every socket that it serves.
        self._map: dict[int, Any] = {}
        self._server: Any = None
        self._lock = threading.Lock()
        self._until_ms: int | None = None
        self._over = False
        _servers.add(self)

    def start(self) -> None:
        """Begins to answer; returns at once."""
        self._server = create_server(
            self._endpoint,
            map=self._map,
            sockets=[self._listener],
            threads=_THREADS,
            ident="anarchon",
            # A client that went away in the middle of a run is none of our errors; the run's end is in the history.
            log_socket_errors=False,
            **_LIMITS,
        )
        self._server.channel_class = _Channel
        self._threads.start("anarchon-http", self._serve)

    def close(self, drain: Duration = "5s") -> None:
        """Takes no more connections, sends off the answers that are under way, and ends the rest. Safe twice.

        Args:
            drain: how long to wait for answers, at the most.
        """
        drain_ms = parse_duration(drain, "drain")
        if self._server is None:
            self._listener.close()
            return
        with self._lock:
            if self._until_ms is None:
                self._until_ms = self._clock.monotonic_ms() + drain_ms
            if not self._over:
                self._server.pull_trigger()
        self._threads.close()
        self._threads.join(drain_ms + _JOIN_MS)

    def _forked(self) -> None:
        # The sockets alone: the rest of waitress has locks, which another thread may have held at the fork.
        self._listener.close()
        for served in list(self._map.values()):
            served.socket.close()

    def _serve(self) -> None:
        try:
            while not self._done():
                # Not select, which fails in a process that has more than a thousand files open.
                wasyncore.loop(timeout=_LOOP_S, use_poll=True, map=self._map, count=1)
        except Exception:
            _logger.exception("The worker's HTTP server has failed, and answers no longer. The jobs go on.")
        finally:
            # From here on nobody may wake the loop: the file number of what wakes it may soon be another file's.
            with self._lock:
                self._over = True
            self._server.task_dispatcher.shutdown(timeout=0 if self._answering() else _JOIN_MS / 1000)
            wasyncore.close_all(self._map, ignore_all=True)

    def _done(self) -> bool:
        if self._until_ms is None:
            return False
        # The listening socket alone: the threads that answer need what the server's own close would take from them.
        wasyncore.dispatcher.close(self._server)
        return not self._answering() or self._clock.monotonic_ms() >= self._until_ms

    def _answering(self) -> bool:
        channels = list(self._server.active_channels.values())
        return any(channel.requests or channel.total_outbufs_len for channel in channels)


_servers: weakref.WeakSet[WorkerServer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for server in list(_servers):
        server._forked()


in_child(_after_fork_in_child)


class _ErrorTask(ErrorTask):
    """What waitress refuses by itself, in the same shape as all other answers."""

    def execute(self) -> None:
        # waitress's own words repeat a faulty line, which may be the one with the token.
        request: Any = self.request
        error = request.error
        answer = refusal(error.code, _OWN_ERRORS.get(error.code, "failed"), f"{error.reason}.")
        body = to_json(answer)
        self.status = f"{error.code} {error.reason}"
        self.response_headers = [("Content-Type", "application/json"), *HEADERS.items()]
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(HTTPChannel):
    """A connection whose every request must be there within the idle time: a byte now and then is no activity."""

    error_task_class = _ErrorTask

    def handle_read(self) -> None:
        begun, active = self.request, self.last_activity
        super().handle_read()
        if begun is not None and self.request is begun:
            self.last_activity = active


def _listen(address: Address, guarded: bool) -> socket.socket:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"Cannot listen on {address}: {_why(error)}.") from error
    # A name may be of both families, and a client that has the name tries both.
    family, kind, protocol, _, where = min(found, key=lambda one: one[0] != socket.AF_INET)
    if not guarded and not is_loopback(str(where[0])):
        raise ConfigurationError(
            f"Cannot listen on {address} without a token, for others than this host may reach it: set {TOKEN_VARIABLE}"
            " or --token-file."
        )
    listener = socket.socket(family, kind, protocol)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        # At once: two may bind to one address, but not listen.
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"Cannot listen on {address}: {_why(error)}.") from error
    return listener


def _why(error: Exception) -> object:
    return getattr(error, "strerror", None) or error
