"""Apps for the tests, each with a store of its own in memory; their schedulers are stopped at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask

from anarchon.contrib.flask import Anarchon

MakeApp = Callable[..., Flask]


@pytest.fixture
def make_app() -> Iterator[MakeApp]:
    """Makes an app with config of the given names, ``ANARCHON_`` left out; it is not given to any extension."""
    apps: list[Flask] = []

    def make(name: str = "shop", **config: Any) -> Flask:
        app = Flask(name)
        for key, value in {"BACKEND": "memory://", **config}.items():
            app.config[f"ANARCHON_{key}"] = value
        apps.append(app)
        return app

    yield make
    for app in apps:
        if "anarchon" in app.extensions:
            assert app.extensions["anarchon"].stop("10s")


@pytest.fixture
def cron() -> Anarchon:
    return Anarchon()


@pytest.fixture
def app(make_app: MakeApp, cron: Anarchon) -> Flask:
    """One app, given to ``cron``."""
    app = make_app()
    cron.init_app(app)
    return app
