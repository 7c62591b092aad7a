"""anarchon in a Flask app: an extension, ``flask anarchon`` commands, a blueprint, and start in the web workers.

::

    cron = Anarchon()

    @cron.every("sync", "10s")
    def sync(ctx): ...

    def create_app():
        app = Flask(__name__)
        app.config.from_prefixed_env()      # FLASK_ANARCHON_BACKEND=redis://...
        cron.init_app(app)
        return app
"""

from __future__ import annotations

from anarchon.contrib.flask.extension import Anarchon

__all__ = ["Anarchon"]
