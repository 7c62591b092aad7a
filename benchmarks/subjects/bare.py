"""The bare design: a thread a job waits on an Event, claims with one EVALSHA, and calls the handler."""

from __future__ import annotations

import threading
import time

import redis
from common import Fired, read_plan

CLAIM = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 60000)"


def main() -> None:
    plan = read_plan()
    fired = Fired(plan)
    client = redis.Redis.from_url(plan.url, protocol=2, max_connections=2000)
    sha = client.script_load(CLAIM)
    over = threading.Event()

    def keep_time(job: int) -> None:
        phase_s = plan.phase_ms(job) / 1000
        slot = int(time.time() - phase_s) + 1 + phase_s
        while not over.wait(max(0, slot - time.time())):
            if client.evalsha(sha, 1, f"{plan.prefix}{job}:{slot:.3f}", "token"):
                fired.handler(job)
            slot += 1

    for job in range(plan.jobs):
        threading.Thread(target=keep_time, args=(job,), daemon=True).start()
    fired.measure()
    over.set()


main()
