"""The API: it reads the history, and asks a worker where something is to be run. It has no jobs of its own."""

from __future__ import annotations

import hmac
import os
import re

from anarchon import BackendError, ConfigurationError, JobNotRegistered, RunRefused
from flask import Flask, Response, abort, jsonify, request
from werkzeug.exceptions import HTTPException

from billing import books, workers
from billing.cron import scheduler as reader

API_TOKEN = os.environ["API_TOKEN"]

app = Flask(__name__)


@app.before_request
def require_token() -> None:
    expected, given = f"Bearer {API_TOKEN}", request.headers.get("Authorization", "")
    if not hmac.compare_digest(expected.encode(), given.encode()):
        abort(401, "Send the header 'Authorization: Bearer ...' with the API's token.")


@app.get("/")
def summary() -> Response:
    return jsonify(books.summary())


@app.get("/jobs")
def jobs() -> Response:
    """The schedule: the workers know it."""
    return jsonify([job.to_dict() for job in workers.jobs()])


@app.get("/jobs/<name>/runs")
def runs(name: str) -> Response:
    limit = request.args.get("limit", "20")
    if not re.fullmatch("[0-9]{1,4}", limit):
        abort(400, "limit must be a whole number.")
    return jsonify([run.to_dict() for run in reader.history(name, int(limit))])


@app.get("/jobs/<name>/last")
def last(name: str) -> Response:
    run = reader.last_run(name)
    return jsonify(run and run.to_dict())


@app.get("/jobs/<name>/active")
def active(name: str) -> Response:
    return jsonify([run.to_dict() for run in reader.active(name)])


@app.post("/jobs/<name>/run")
def run(name: str) -> Response:
    """A manual run, on a worker. The answer comes when it has ended."""
    return jsonify(workers.run_now(name).to_dict())


@app.errorhandler(HTTPException)
def refused(error: HTTPException) -> tuple[Response, int]:
    return jsonify(error=error.name, message=error.description), error.code or 500


@app.errorhandler(ConfigurationError)
def bad_request(error: ConfigurationError) -> tuple[Response, int]:
    return jsonify(error="Bad Request", message=str(error)), 400


@app.errorhandler(JobNotRegistered)
def not_found(error: JobNotRegistered) -> tuple[Response, int]:
    return jsonify(error="Not Found", message=str(error), nearest=error.nearest), 404


@app.errorhandler(RunRefused)
def conflict(error: RunRefused) -> tuple[Response, int]:
    return jsonify(error="Conflict", message=str(error), holder=error.holder), 409


@app.errorhandler(BackendError)
def unavailable(error: BackendError) -> tuple[Response, int]:
    app.logger.warning("%s", error)
    return jsonify(error="Service Unavailable", message="The store or the workers could not be reached."), 503
