"""Asks a worker over HTTP: the side of an API process, which has no jobs of its own.

Guarantees:

- The token goes to the worker that the URL names and to nobody else: redirects are not followed, and proxies of the
  environment are not used. It stands in no ``repr`` and in no error.
- What is not known is told so: an error says whether the run can have begun. Nothing is sent twice.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload
from urllib.parse import quote, urlsplit

from anarchon.durations import Duration, parse_duration
from anarchon.errors import (
    AnarchonError,
    BackendError,
    ConfigurationError,
    JobNotRegistered,
    RunRefused,
    error_text,
    shown,
)
from anarchon.job import check_job_name
from anarchon.records import ActiveRun, JobInfo, RunRecord
from anarchon.web.answers import MOST_RECORDS
from anarchon.web.tokens import check_token

__all__ = ["RemoteWorkers"]

_T = TypeVar("_T")

#: How long to wait for a connection, and for the answer to a question: a store that is away is told within that.
_CONNECT_S = 10
_QUESTION_S = 30

#: A thousand records, each with an error of 4 KiB all of whose characters are escaped, are less.
_LONGEST_ANSWER = 64 * 2**20

#: A worker whose host is gone says nothing, and a run may rightly take hours: the kernel asks after half a minute of
#: silence, and gives up after another.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}

_NOT_RUN = " The job was not run."
_MAY_RUN = " The run may have begun; then its end will be in the job's history."


class RemoteWorkers:
    """Asks a worker that was started by ``anarchon worker --http``, or serves a ``WorkerEndpoint``.

    Args:
        url: ``http://HOST:PORT``, or ``https://`` with the path at which it is mounted. Behind the name may be several
            workers; each run is asked of one of them.
        token: the worker's. None: its questions can be asked, if it runs on this host and has none either.
        timeout: how long to wait for the end of a run. None: as long as it takes.
        ssl_context: for ``https``; None: Python's default, which trusts what the host trusts.

    Raises:
        ConfigurationError: the URL, the token or the timeout is none.

    Any thread may call it, and no connection is kept. A question is given up after half a minute of silence.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: Duration | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._place = _parse_url(url)
        self._token = None if token is None else check_token(token)
        self._timeout_s = None if timeout is None else parse_duration(timeout, "timeout") / 1000
        if self._timeout_s == 0:
            raise ConfigurationError("timeout must be longer than nothing; None waits for as long as a run takes.")
        if self._place.https and ssl_context is None:
            ssl_context = ssl.create_default_context()
        self._ssl_context = ssl_context

    def __repr__(self) -> str:
        return f"<RemoteWorkers {self._place}>"

    @overload
    def run_now(self, name: str) -> RunRecord: ...
    @overload
    def run_now(self, name: str, *, wait: Duration | None) -> RunRecord | None: ...
    def run_now(self, name: str, *, wait: Duration | None = None) -> RunRecord | None:
        """Runs a job on a worker, and returns its record when the run has ended. The run goes on if this is given up.

        Args:
            wait: as for ``Scheduler.run_now``: how long the worker waits before it answers, at the most. It is given up
                half a minute after that; None: after the client's timeout alone.

        Returns:
            The record; None where the run goes on after ``wait``.

        Raises:
            ConfigurationError: not a job's name or a duration; or the worker wants another token.
            JobNotRegistered: the worker has no job of that name.
            RunRefused: another run is in the way (``holder``), the worker stops (``stopping``), or has as many runs as
                may be asked for at a time.
            BackendError: the worker could not be reached, or not within the timeout, or its store is away. The message
                says whether the run may have begun.
        """
        told = None if wait is None else {"wait": parse_duration(wait, "wait") / 1000}
        values = self._ask("POST", check_job_name(name), "run", told)
        if values is None and told is not None:
            return None
        return self._read(lambda: RunRecord.from_dict(values), _MAY_RUN)

    def jobs(self) -> list[JobInfo]:
        """The jobs that are registered on the worker. Raises as ``history``."""
        values = self._ask("GET")
        return self._read(lambda: [JobInfo.from_dict(one) for one in values])

    def history(self, name: str, limit: int = 20) -> list[RunRecord]:
        """The newest records of any job, newest first.

        Args:
            limit: from 1 to 1000.

        Raises:
            ConfigurationError: not a job's name, or another limit; or the worker wants another token.
            BackendError: the worker could not be reached, or its store is away.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_RECORDS:
            raise ConfigurationError(f"limit must be a whole number from 1 to {MOST_RECORDS}, not {shown(limit)}.")
        values = self._ask("GET", check_job_name(name), f"runs?limit={limit}")
        return self._read(lambda: [RunRecord.from_dict(one) for one in values])

    def last_run(self, name: str) -> RunRecord | None:
        """The newest record of any job, or None. Raises as ``history``."""
        values = self._ask("GET", check_job_name(name), "last")
        return None if values is None else self._read(lambda: RunRecord.from_dict(values))

    def active(self, name: str) -> list[ActiveRun]:
        """The runs of any job that have not finished. Raises as ``history``."""
        values = self._ask("GET", check_job_name(name), "active")
        return self._read(lambda: [ActiveRun.from_dict(one) for one in values])

    def _ask(self, method: str, job: str | None = None, what: str = "", told: dict[str, Any] | None = None) -> Any:
        """One request; the value that was answered."""
        path = "/jobs" if job is None else f"/jobs/{quote(job, safe='')}/{what}"
        patience_s = _QUESTION_S if method == "GET" else self._patience_s(told)
        status, raw = self._exchange(method, path, b"" if told is None else json.dumps(told).encode(), patience_s)
        try:
            values = json.loads(raw)
        except (ValueError, RecursionError):
            values = _NoJson
        if status in (200, 202) and values is not _NoJson:
            return values
        raise self._refusal(status, values, job or "", running=method == "POST")

    def _patience_s(self, told: dict[str, Any] | None) -> float | None:
        """How long to wait for the answer to a run. None: without limit."""
        limits = [] if self._timeout_s is None else [self._timeout_s]
        if told is not None:
            # A worker that is paused holds its connections, and answers neither then nor ever.
            limits.append(told["wait"] + _QUESTION_S)
        return min(limits, default=None)

    def _exchange(self, method: str, path: str, body: bytes, patience_s: float | None) -> tuple[int, bytes]:
        running = method == "POST"
        connection = self._connection()
        try:
            try:
                connection.connect()
            except (OSError, UnicodeError) as error:
                raise self._lost("could not be reached", error, _NOT_RUN if running else "") from _bare(error)
            try:
                _be_patient(connection.sock, patience_s)
                self._send(connection, method, path, body)
                with connection.getresponse() as response:
                    raw = response.read(_LONGEST_ANSWER)
                    if response.length:
                        raise http.client.IncompleteRead(b"", response.length)
            except (OSError, http.client.HTTPException, ValueError) as error:
                # A ValueError: a chunk that says it is shorter than nothing, which http.client lets through.
                raise self._lost("did not answer", error, _MAY_RUN if running else "") from _bare(error)
        finally:
            connection.close()
        return response.status, raw

    def _connection(self) -> http.client.HTTPConnection:
        place = self._place
        if place.https:
            return http.client.HTTPSConnection(place.host, place.port, timeout=_CONNECT_S, context=self._ssl_context)
        return http.client.HTTPConnection(place.host, place.port, timeout=_CONNECT_S)

    def _send(self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes) -> None:
        # In a frame of its own, which is gone when the answer is waited for: see _bare.
        connection.putrequest(method, self._place.path + path, skip_accept_encoding=True)
        if self._token is not None:
            connection.putheader("Authorization", f"Bearer {self._token}")
        connection.putheader("Accept", "application/json")
        connection.putheader("Connection", "close")
        if method == "POST":
            connection.putheader("Content-Length", str(len(body)))
        if body:
            connection.putheader("Content-Type", "application/json")
        connection.endheaders(body or None)

    def _read(self, read: Callable[[], _T], running: str = "") -> _T:
        try:
            return read()
        except (ValueError, TypeError) as error:
            raise BackendError(f"The worker at {self._place} answered what it should not: {error}.{running}") from error

    def _lost(self, what: str, error: Exception, running: str) -> BackendError:
        return BackendError(f"The worker at {self._place} {what}: {error_text(error)}.{running}")

    def _refusal(self, status: int, values: Any, job: str, running: bool) -> AnarchonError:
        """The error that the worker, or whoever answered in its place, has told."""
        facts = values if isinstance(values, dict) else {}
        word, message = facts.get("error"), _text(facts.get("message"))
        may_run = _MAY_RUN if running and not 300 <= status < 500 else ""
        if not isinstance(word, str) or message is None:
            # Something that stands before the worker, and may have asked it; or nothing of ours.
            return BackendError(
                f"{self._place} answered {status}, and not as a worker does: is the URL right?{may_run}"
            )
        if word == "job-not-registered":
            return JobNotRegistered(job, _text(facts.get("nearest")))
        if word in ("run-refused", "stopping", "busy"):
            return RunRefused(job, _text(facts.get("holder")), message, stopping=word == "stopping")
        told = f"The worker at {self._place} answered {status}: {message}"
        if word == "store-unavailable":
            # Which could not grant the run.
            return BackendError(told + (_NOT_RUN if running else ""))
        return ConfigurationError(told) if 400 <= status < 500 else BackendError(told + may_run)


@dataclass(frozen=True)
class _Place:
    """Where a worker is asked."""

    https: bool
    host: str
    port: int | None
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"http{'s' if self.https else ''}://{host}{port}{self.path}"


class _NoJson:
    """Stands for an answer that could not be read."""


def _parse_url(url: object) -> _Place:
    # Nothing of the URL is repeated: somebody may have put a password into it.
    wanted = "The URL of a worker is http://HOST:PORT or https://HOST:PORT, with a path where it has one"
    if not isinstance(url, str):
        raise ConfigurationError(f"{wanted}, not {type(url).__name__}.")
    if not all("!" <= character <= "~" for character in url):
        raise ConfigurationError(f"{wanted}, of visible ASCII characters.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigurationError(f"{wanted}; its port or its brackets are wrong.") from None
    if "@" in parts.netloc:
        raise ConfigurationError(f"{wanted}, without user and password: the token is an argument of its own.")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"{wanted}.")
    if "?" in url or "#" in url:
        raise ConfigurationError(f"{wanted}, without a query or a fragment.")
    return _Place(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))


def _be_patient(connected: socket.socket, timeout_s: float | None) -> None:
    connected.settimeout(timeout_s)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bare(error: Exception) -> Exception:
    """The error without the frames it came through, in one of which the token is at hand for whoever shows locals."""
    return error.with_traceback(None)


def _text(value: object) -> str | None:
    return value[:1_000] if isinstance(value, str) else None
