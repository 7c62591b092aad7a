"""What the subjects of the takeovers share: their store, their settings, and a run that tells when it begins.

Each ``takeover_<name>.py`` has three functions: ``send`` gives the work to the store, ``work`` is an instance and never
returns, ``about`` says of the settings what is in force and what would be by default.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

URL = os.environ["BENCHMARK_URL"]
SETTINGS: dict[str, Any] = json.loads(os.environ["BENCHMARK_SETTINGS"])


def tell_begun() -> None:
    """One line of the log: the instance, which leads the session of its processes, and when."""
    with open(os.environ["BENCHMARK_LOG"], "a") as log:
        log.write(f"{os.getsid(0)} {time.monotonic()}\n")


def run_for_ever() -> None:
    tell_begun()
    while True:
        time.sleep(1)
