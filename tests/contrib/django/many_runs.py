"""500 runs, four at a time, each of which uses the site's database; says what came of it, and lives on."""

from __future__ import annotations

import os
import threading
from collections import Counter

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")

import django
from django.db import connection

django.setup()

from shop.models import Sale  # noqa: E402

from anarchon.contrib.django import scheduler  # noqa: E402

RUNS, AT_A_TIME = 500, 4

lock = threading.Lock()
together = threading.Barrier(AT_A_TIME, timeout=60)
#: The connections that are in use now.
in_use: set[object] = set()
statuses: Counter[str] = Counter()


@scheduler.cron("many", "0 0 1 1 *", overlap="allow")
def many() -> None:
    Sale.objects.count()
    # PostgreSQL's process, which no two connections share; SQLite has none.
    here = getattr(getattr(connection.connection, "info", None), "backend_pid", id(connection.connection))
    with lock:
        in_use.add(here)
    together.wait()
    assert len(in_use) == AT_A_TIME, f"{AT_A_TIME} runs share {len(in_use)} connections"
    together.wait()
    with lock:
        in_use.remove(here)


@scheduler.on("success")
def note(event: object) -> None:
    Sale.objects.count()


def call() -> None:
    for _ in range(RUNS // AT_A_TIME):
        record = scheduler.run_now("many")
        with lock:
            statuses[f"{record.status} {record.error or ''}".strip()] += 1


callers = [threading.Thread(target=call) for _ in range(AT_A_TIME)]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
print(f"{RUNS} runs, {AT_A_TIME} at a time: {dict(statuses)}", flush=True)
threading.Event().wait()
