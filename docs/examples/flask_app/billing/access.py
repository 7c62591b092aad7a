"""Who may read over HTTP what the jobs do."""

from __future__ import annotations

import hmac

from flask import Request, current_app


def may_read(request: Request) -> bool:
    """Those who send the token; nobody where there is none."""
    token = current_app.config["API_TOKEN"]
    given = request.headers.get("Authorization", "")
    return bool(token) and hmac.compare_digest(f"Bearer {token}".encode(), given.encode())
