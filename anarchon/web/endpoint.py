"""The worker endpoint: a scheduler's questions and manual runs over HTTP, as one WSGI application.

Guarantees:

- Who does not show the token learns nothing and gets nothing done. Without a token nothing can be run, and only this
  host is answered.
- Every answer has a JSON body, and none tells more of a fault than its caller needs: the log has the rest.
- At most ``max_runs`` threads of the server wait for runs, so that questions are answered meanwhile.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge
from werkzeug.routing import BaseConverter, Map, Rule
from werkzeug.wrappers import Request, Response

from anarchon.errors import ConfigurationError, shown
from anarchon.scheduler import Scheduler
from anarchon.web import answers
from anarchon.web.addresses import is_loopback, names_loopback
from anarchon.web.answers import Answer, refusal
from anarchon.web.tokens import TOKEN_VARIABLE, TokenGuard

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["HEADERS", "WorkerEndpoint", "to_json"]

_logger = logging.getLogger("anarchon")

#: No cache may keep what only its caller may know, and no browser may take it for a page.
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

#: Beside their headers; more than what a run can be told.
_LONGEST_BODY = 4_096


class _AnyName(BaseConverter):
    """A job's name, which may have slashes in it: the last part of the path is what is asked, the rest is the name."""

    regex = ".+"
    part_isolating = False


_ROUTES = Map(
    [
        Rule("/jobs", endpoint="jobs", methods=["GET"]),
        Rule("/jobs/<name:name>/runs", endpoint="runs", methods=["GET"]),
        Rule("/jobs/<name:name>/last", endpoint="last", methods=["GET"]),
        Rule("/jobs/<name:name>/active", endpoint="active", methods=["GET"]),
        Rule("/jobs/<name:name>/run", endpoint="run", methods=["POST"]),
    ],
    converters={"name": _AnyName},
    # A name with two slashes in it is another name; a redirect would ask for the wrong one, and drop the token.
    merge_slashes=False,
)


class _Request(Request):
    # One more than may be: Werkzeug cuts off without a word what comes in chunks, whose length nobody has told.
    max_content_length = _LONGEST_BODY + 1


class WorkerEndpoint:
    """A WSGI application that answers ``jobs``, ``runs``, ``last`` and ``active`` of a scheduler, and runs its jobs.

    Args:
        scheduler: whose jobs; it may be started before, later, or never.
        token: what every request must bear. None: no run is possible, and only requests from this host are answered.
        max_runs: how many requests may wait for a run at the same time; fewer than the server's threads.
        until_stopped: whether runs are refused from the scheduler's stop to its next start. For a process that ends
            with the stop: a run that is asked for after that would be cut off.

    Raises:
        ConfigurationError: not a scheduler; a token of fewer than 16 characters or with others than visible ASCII; or
            ``max_runs`` is not a whole number of 1 or more.

    Any thread may call it. A run blocks its caller until it has ended, or for the ``wait`` in the body.
    """

    def __init__(
        self, scheduler: Scheduler, token: str | None = None, *, max_runs: int = 4, until_stopped: bool = False
    ) -> None:
        if not isinstance(scheduler, Scheduler):
            raise ConfigurationError(f"WorkerEndpoint takes a Scheduler, not {type(scheduler).__name__}.")
        if isinstance(max_runs, bool) or not isinstance(max_runs, int) or max_runs < 1:
            raise ConfigurationError(f"max_runs must be a whole number of 1 or more, not {shown(max_runs)}.")
        self._scheduler = scheduler
        self._guard = None if token is None else TokenGuard(token)
        self._max_runs = max_runs
        self._until_stopped = until_stopped
        self._room = threading.BoundedSemaphore(max_runs)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            response = _response(self._answer(_Request(environ)))
        except Exception:
            _logger.exception("A request over HTTP could not be answered.")
            response = _response(refusal(500, "failed", "This worker could not answer; its log says why."))
        return response(environ, start_response)

    def _answer(self, request: Request) -> Answer:
        barred = self._barred(request)
        if barred is not None:
            return barred
        try:
            asked, arguments = _ROUTES.bind("worker").match(request.path, request.method)
        except MethodNotAllowed as error:
            allowed = ", ".join(sorted(error.valid_methods or ()))
            message = f"{shown(request.path)} takes {allowed}, not {shown(request.method)}."
            return refusal(405, "method-not-allowed", message, {"Allow": allowed})
        except NotFound:
            known = "/jobs, /jobs/NAME/runs, /jobs/NAME/last, /jobs/NAME/active and /jobs/NAME/run"
            return refusal(404, "not-found", f"There is no {shown(request.path)} here, but {known}.")
        return self._asked(request, asked, **arguments)

    def _barred(self, request: Request) -> Answer | None:
        """Why this caller is not answered, or None: before all else, so that nothing can be learnt from the rest."""
        if self._guard is not None:
            authorization = request.environ.get("HTTP_AUTHORIZATION")
            if self._guard.admits(authorization):
                return None
            _logger.warning("A request over HTTP from %s did not bear the token.", shown(request.remote_addr))
            what = "has no header 'Authorization: Bearer TOKEN'" if authorization is None else "bears another token"
            headers = {"WWW-Authenticate": 'Bearer realm="anarchon"'}
            return refusal(401, "unauthorized", f"This worker wants its token, and the request {what}.", headers)
        if is_loopback(request.remote_addr) and names_loopback(request.environ.get("HTTP_HOST")):
            return None
        message = "This worker has no token, so it answers only its own host, and only under that host's own names."
        return refusal(403, "token-needed", f"{message} Set {TOKEN_VARIABLE}.")

    def _asked(self, request: Request, asked: str, name: str = "") -> Answer:
        if asked == "jobs":
            return answers.jobs(self._scheduler)
        if asked == "runs":
            return answers.runs(self._scheduler, name, request.args.get("limit"))
        if asked == "last":
            return answers.last(self._scheduler, name)
        if asked == "active":
            return answers.active(self._scheduler, name)
        return self._run(request, name)

    def _run(self, request: Request, name: str) -> Answer:
        if self._guard is None:
            return refusal(403, "token-needed", f"This worker has no token, so it runs nothing. Set {TOKEN_VARIABLE}.")
        told = _told(request)
        if isinstance(told, Answer):
            return told
        if not self._room.acquire(blocking=False):
            message = f"Job {name!r} was not run: as many as may, {self._max_runs}, wait for runs here."
            return refusal(503, "busy", message, {"Retry-After": "5"}, job=name)
        try:
            _logger.info("A run of %s is asked for over HTTP by %s.", shown(name), shown(request.remote_addr))
            return answers.run(self._scheduler, name, told.get("wait"), self._until_stopped)
        finally:
            self._room.release()


def to_json(answer: Answer) -> bytes:
    """An answer's body as it is sent: a line of JSON in ASCII."""
    return json.dumps(answer.body).encode("ascii") + b"\n"


def _response(answer: Answer) -> Response:
    headers = {**HEADERS, **answer.headers}
    return Response(to_json(answer), answer.status, headers, content_type="application/json")


def _told(request: Request) -> dict[str, Any] | Answer:
    """What the body of a run says; or why it says nothing that makes sense."""
    too_large = refusal(413, "body-too-large", f"The body must have at most {_LONGEST_BODY} bytes.")
    try:
        body = request.get_data(cache=False)
    except RequestEntityTooLarge:
        return too_large
    except HTTPException:
        return refusal(400, "bad-body", "The body broke off.")
    if len(body) > _LONGEST_BODY:
        return too_large
    if not body:
        return {}
    if request.mimetype != "application/json":
        return refusal(415, "no-json", "The body must be empty, or application/json.")
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return refusal(400, "bad-json", "The body is no JSON.")
    if not isinstance(told, dict):
        return refusal(400, "bad-json", "The body must be a JSON object.")
    unknown = sorted(told.keys() - {"wait"})
    if unknown:
        return refusal(400, "unknown-key", f"A run can be told to 'wait', but knows nothing of {shown(unknown[0])}.")
    return told
