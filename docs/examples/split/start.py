"""Two workers and the API, as a process manager keeps them: one that is killed is started again.

SIGTERM or Ctrl-C stops them all. Every setting is in the environment; a token that is not there is made, once, and kept
in ``var/`` for its owner alone.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from urllib.parse import urlsplit

from billing.config import VAR, WORKERS


def main() -> int:
    for name in ("API_TOKEN", "ANARCHON_TOKEN"):
        os.environ.setdefault(name, kept(name.lower()))
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: told.append(number))
    running = {name: start(name) for name in commands()}
    code = 0
    while not told and not code:
        time.sleep(0.2)
        for name, process in running.items():
            if process.poll() is not None:
                # One that gave up by itself would do so again.
                code = max(process.returncode, 0)
                running[name] = process if code else start(name)
    if signal.SIGINT not in told:  # which a terminal sends to all of them
        for process in running.values():
            process.terminate()
    for process in running.values():
        process.wait()
    return code


def commands() -> dict[str, list[str]]:
    """What is to run, each under its name."""
    found = {}
    for number, url in enumerate(WORKERS, 1):
        found[f"worker-{number}"] = ["anarchon", "worker", "billing.cron:scheduler", "--http", urlsplit(url).netloc]
    # Threads, since a request for a manual run lasts as long as the run.
    address = os.environ.get("BIND", "127.0.0.1:8000")
    found["api"] = ["gunicorn", "billing.api:app", "--bind", address, "--worker-class", "gthread", "--threads", "8"]
    return found


def start(name: str) -> subprocess.Popen[bytes]:
    role = {"POD_NAME": name, "RUN_JOBS": str(name != "api").lower()}
    process = subprocess.Popen([sys.executable, "-m", *commands()[name]], env={**os.environ, **role})
    print(f"{name} is process {process.pid}", flush=True)
    return process


def kept(name: str) -> str:
    """The token in ``var/``, made now where there is none."""
    path = VAR / name
    if not path.exists():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
    return path.read_text(encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
