"""The jobs over HTTP, as JSON: what runs, ran and will run. Only reads; ``include("anarchon.contrib.django.urls")``.

Guarantees:

- Whoever asks is let in by ``ANARCHON["PERMISSION"]``, called with the request, and by nothing else: a program that
  has no session is not sent to a page for its login. Without one, nobody is but where DEBUG is on. Anything but True
  and False is no answer: a hook that returns a response, to refuse, does not let anybody in.
- Every answer of these views is JSON, a refusal too, and none is to be stored on the way.
- History is read from the store at each request: a process that registers no job can show it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from anarchon.contrib.django import scheduler
from anarchon.contrib.django.settings import permission
from anarchon.errors import shown
from anarchon.web import answers
from anarchon.web.answers import Answer, refusal

__all__ = ["active", "jobs", "last", "runs"]

_METHODS = ("GET", "HEAD")

_View = Callable[..., JsonResponse]


def _answering(ask: Callable[..., Answer]) -> _View:
    """Makes a view of what is asked of the scheduler."""

    # Exempt, because it only reads: so another method gets the answer below, and not a page.
    @login_not_required
    @csrf_exempt
    @functools.wraps(ask)
    def view(request: HttpRequest, **names: Any) -> JsonResponse:
        if not _permitted(request):
            answer = refusal(403, "forbidden", "You may not ask for the jobs of this site.")
        elif request.method not in _METHODS:
            allowed = ", ".join(_METHODS)
            answer = refusal(405, "method-not-allowed", f"Only {allowed} are answered.", {"Allow": allowed})
        else:
            answer = ask(request, **names)
        headers = {"Cache-Control": "no-store", **answer.headers}
        # safe: a list is an answer as good as any, since no browser has let another site read one for long.
        return JsonResponse(answer.body, safe=False, status=answer.status, headers=headers)

    return view


@_answering
def jobs(request: HttpRequest) -> Answer:
    """The jobs that are registered in this process."""
    return answers.jobs(scheduler)


@_answering
def runs(request: HttpRequest, name: str) -> Answer:
    """The newest attempts of any job, as many as ``limit`` says."""
    return answers.runs(scheduler, name, request.GET.get("limit"))


@_answering
def last(request: HttpRequest, name: str) -> Answer:
    """The newest attempt of any job, or null."""
    return answers.last(scheduler, name)


@_answering
def active(request: HttpRequest, name: str) -> Answer:
    """The runs of any job that have not finished."""
    return answers.active(scheduler, name)


def _permitted(request: HttpRequest) -> bool:
    asks = permission()
    if asks is None:
        return bool(settings.DEBUG)
    try:
        may = asks(request)
    except PermissionDenied:
        return False
    if not isinstance(may, bool):
        raise TypeError(f"ANARCHON['PERMISSION'] must return True or False, not {shown(may)}.")
    return may
