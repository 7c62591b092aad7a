"""How the site is served; gunicorn reads this by itself."""

import os

wsgi_app = "billing:create_app()"
bind = os.environ.get("BIND", "127.0.0.1:8000")
workers = int(os.environ.get("WEB_CONCURRENCY", "3"))
worker_class = "gthread"
threads = 4
