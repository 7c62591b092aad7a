"""The jobs over HTTP, read-only, as a blueprint: ``GET jobs``, and ``runs``, ``last`` and ``active`` of any job.

Whoever asks must be let in by the app's permission; without one, only debug mode lets anybody in. What is refused, and
what is not found below the blueprint's prefix, has a JSON body like all other answers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, current_app, request
from flask.blueprints import BlueprintSetupState
from werkzeug.exceptions import Forbidden
from werkzeug.routing import PathConverter

from anarchon.contrib.flask.settings import Permission
from anarchon.errors import shown
from anarchon.web import answers
from anarchon.web.answers import Answer, refusal

if TYPE_CHECKING:
    from anarchon.contrib.flask.extension import Anarchon

__all__ = ["make_blueprint"]

_SAFE = ("GET", "HEAD", "OPTIONS")
_ALL = (*_SAFE, "POST", "PUT", "PATCH", "DELETE")


class _Name(PathConverter):
    """A job's name, which may have slashes in any place."""

    regex = ".+?"
    part_isolating = False


def make_blueprint(extension: Anarchon, permission: Permission | None) -> Blueprint:
    """Makes a blueprint that answers for whichever of the extension's apps it is registered on.

    Args:
        permission: goes before the one in the app's config; None: that one.
    """
    blueprint = Blueprint("anarchon", __name__)

    def let_in() -> bool:
        allows = permission or extension._settings.permission
        if allows is None:
            return current_app.debug
        try:
            allowed: Any = allows(request._get_current_object())  # type: ignore[attr-defined]
        except Forbidden:
            return False
        if not isinstance(allowed, bool):
            # A redirect to a login page, say, would count as yes.
            raise TypeError(f"The permission must return True or False, not {shown(allowed)}.")
        return allowed

    @blueprint.before_request
    def guard() -> Response | None:
        if request.method == "OPTIONS":
            return _allow(Response())
        if not let_in():
            return _sent(refusal(403, "forbidden", "You may not ask for the jobs of this app."))
        if request.method not in _SAFE:
            return _allow(_sent(refusal(405, "method-not-allowed", "Only GET, HEAD are answered.")))
        return None

    def jobs() -> Response:
        return _sent(answers.jobs(extension.scheduler))

    def runs(name: str) -> Response:
        return _sent(answers.runs(extension.scheduler, name, request.args.get("limit")))

    def last(name: str) -> Response:
        return _sent(answers.last(extension.scheduler, name))

    def active(name: str) -> Response:
        return _sent(answers.active(extension.scheduler, name))

    def nothing(rest: str = "") -> Response:
        return _sent(refusal(404, "not-found", f"There is nothing at {request.path}."))

    def set_up(state: BlueprintSetupState) -> None:
        state.app.url_map.converters["anarchon_name"] = _Name
        state.add_url_rule("/jobs", "jobs", jobs)
        for view in (runs, last, active):
            state.add_url_rule(f"/jobs/<anarchon_name:name>/{view.__name__}", view.__name__, view)
        # The rest below our prefix, other methods included: what no rule takes, Flask refuses without asking us.
        below = "" if (state.url_prefix or "").strip("/") else "/jobs"
        for rule in (below or "/", f"{below}/<anarchon_name:rest>"):
            state.add_url_rule(rule, "nothing", nothing, methods=_ALL)

    blueprint.record(set_up)
    return blueprint


def _sent(answer: Answer) -> Response:
    headers = {"Cache-Control": "no-store", **answer.headers}
    return Response(json.dumps(answer.body), answer.status, headers, mimetype="application/json")


def _allow(response: Response) -> Response:
    response.headers["Allow"] = ", ".join(_SAFE)
    return response
