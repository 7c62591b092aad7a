"""Billing, a Flask app whose web workers also run its jobs."""

from __future__ import annotations

import os
from pathlib import Path

from flask import Flask

from billing import access, books, jobs, pages


def create_app() -> Flask:
    app = Flask(__name__)
    Path(app.instance_path).mkdir(mode=0o700, exist_ok=True)
    redis_url = os.environ.get("REDIS_URL")
    app.config.from_mapping(
        ANARCHON_BACKEND=redis_url or f"sqlite:///{app.instance_path}/jobs.db",
        ANARCHON_PREFIX="billing:cron:" if redis_url else None,
        ANARCHON_TIMEZONE="Europe/Athens",
        ANARCHON_AUTOSTART=True,
        ANARCHON_PERMISSION=access.may_read,
        API_TOKEN=None,
    )
    # FLASK_API_TOKEN, FLASK_ANARCHON_LEASE and the like go before what stands here.
    app.config.from_prefixed_env()
    books.init_app(app)
    app.register_blueprint(pages.blueprint)
    jobs.cron.init_app(app)
    app.register_blueprint(jobs.cron.blueprint(), url_prefix="/cron")
    return app
