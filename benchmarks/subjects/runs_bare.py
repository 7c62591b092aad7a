"""The bare design: one thread takes a lock, renews it, and gives it back with a record: three EVALSHAs a run."""

from __future__ import annotations

import json
import sys
import time

import redis

CLAIM = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000)"
RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], 30000) end"
FINISH = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('LPUSH', KEYS[2], ARGV[2])
  return redis.call('LTRIM', KEYS[2], 0, 99)
end
"""
RECORD = json.dumps({"job": "job", "slot": 1_700_000_000_000, "status": "success", "instance": "web-1:4242", "ms": 1})


def main() -> None:
    plan = json.loads(sys.argv[1])
    client = redis.Redis.from_url(plan["url"], protocol=2)
    claim, renew, finish = map(client.script_load, (CLAIM, RENEW, FINISH))
    runs = 0

    def go_on(seconds: float) -> float:
        nonlocal runs
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            token = f"t{runs}"
            client.evalsha(claim, 1, "lock", token)
            client.evalsha(renew, 1, "lock", token)
            client.evalsha(finish, 2, "lock", "history", token, RECORD)
            runs += 1
        return time.monotonic() - begun

    go_on(1)
    runs = 0
    seconds = go_on(plan["seconds"])
    print(json.dumps({"runs": runs, "seconds": seconds}))


main()
