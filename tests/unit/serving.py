"""A worker's endpoint as it is really served, and clients that say what no HTTP library would."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from anarchon import MemoryBackend, RunContext, Scheduler
from anarchon.web.server import WorkerServer

__all__ = ["BEARER", "TOKEN", "Jobs", "answer_of", "connect", "exchange", "serving"]

TOKEN = "correct-horse-battery-staple"
BEARER = f"Authorization: Bearer {TOKEN}\r\n"


class Jobs:
    """Jobs that are due once in four years: ``sync``; ``fails``; ``long``, which goes on until it is let go or told to
    stop; and ``deaf``, which heeds nothing but being let go."""

    def __init__(self, backend: Any = None) -> None:
        self.begun = threading.Semaphore(0)
        self._over = threading.Event()
        self.scheduler = (
            Scheduler(backend or MemoryBackend(), instance_id="there", lease="5m")
            .cron("sync", "0 0 29 2 *", lambda: None)
            .cron("fails", "0 0 29 2 *", self._fail)
            .cron("long", "0 0 29 2 *", self._long, overlap="allow")
            .cron("deaf", "0 0 29 2 *", self._deaf)
        )

    def wait_until_begun(self) -> None:
        assert self.begun.acquire(timeout=60)

    def let_go(self) -> None:
        self._over.set()

    def _fail(self) -> None:
        raise ValueError("no money")

    def _long(self, ctx: RunContext) -> None:
        self.begun.release()
        while not self._over.wait(0.01):
            ctx.raise_if_cancelled()

    def _deaf(self) -> None:
        self.begun.release()
        self._over.wait(60)


@contextmanager
def serving(jobs: Jobs, token: str | None = TOKEN, http: str = ":0") -> Iterator[WorkerServer]:
    """The jobs' scheduler, started and served; at the end all of it is gone."""
    server = WorkerServer(jobs.scheduler, http, token)
    server.start()
    try:
        with jobs.scheduler:
            yield server
            jobs.let_go()
    finally:
        jobs.let_go()
        server.close()
        jobs.scheduler.stop("60s")


def connect(server: WorkerServer) -> socket.socket:
    place = urlsplit(server.url)
    assert place.hostname is not None
    return socket.create_connection((place.hostname, place.port), timeout=60)


def exchange(server: WorkerServer, sent: bytes) -> tuple[int, dict[str, str], Any]:
    """Sends bytes, and reads one answer to its end: status, headers, and the JSON body, None where there is none."""
    with connect(server) as connected:
        connected.sendall(sent)
        return answer_of(connected)


def answer_of(connected: socket.socket) -> tuple[int, dict[str, str], Any]:
    with connected.makefile("rb") as answered:
        status = int(answered.readline().split()[1])
        headers: dict[str, str] = {}
        while line := answered.readline().strip():
            name, _, value = line.decode("latin-1").partition(": ")
            headers[name.lower()] = value
        body = answered.read(int(headers["content-length"]))
    return status, headers, json.loads(body) if body else None
