"""What the workers and the API share. The environment says it; where it is silent, everything is on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from anarchon import LeaseBackend, RedisBackend, SQLiteBackend

VAR = Path(__file__).resolve().parents[1] / "var"
VAR.mkdir(mode=0o700, exist_ok=True)


def _store() -> LeaseBackend:
    if os.environ.get("REDIS_URL"):
        return RedisBackend(os.environ["REDIS_URL"], prefix="billing:cron:")
    return SQLiteBackend(VAR / "jobs.db")


#: The same store, prefix and time zone for everyone: this is what makes them one.
CRON: dict[str, Any] = dict(
    backend=_store(),
    timezone="Europe/Athens",
    lease=os.environ.get("JOBS_LEASE", "30s"),
    instance_id=os.environ.get("POD_NAME"),
    log=True,
)

#: The role of this process.
RUN_JOBS = os.environ.get("RUN_JOBS") == "true"

#: Where the workers listen to the API.
WORKERS = os.environ.get("WORKERS", "http://127.0.0.1:9100,http://127.0.0.1:9101").split(",")
