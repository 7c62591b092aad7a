"""anarchon: at its start the newest slot of a daily job is caught up on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# The folder of this file has one of the package's name, and stands first on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from takeover_common import SETTINGS, URL, run_for_ever

from anarchon import Scheduler


def scheduler(**options: Any) -> Scheduler:
    return Scheduler(URL).every("job", "1d", run_for_ever, catch_up="1d", **options)


def send() -> None:
    """Each instance knows its jobs."""


def work() -> None:
    scheduler(**SETTINGS).run_forever()


def about() -> dict[str, Any]:
    [ours], [defaults] = scheduler(**SETTINGS).jobs(), scheduler().jobs()
    return {
        "setting": "lease",
        "set_s": ours.options["lease"],
        "default_s": defaults.options["lease"],
        "by_default_s": defaults.options["lease"] + defaults.options["heartbeat"] / 2,
        "how": "at most: the lease, and half a heartbeat over which the checks are spread",
    }
