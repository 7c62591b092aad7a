"""What the demo consists of: known to the workers, to the one who watches them and to the judge."""

from __future__ import annotations

__all__ = ["BILLING_LEASE_MS", "BILLING_STEPS", "EVERY_MS", "JOBS", "LONGEST_MS", "STEP_MS", "WORKERS"]

WORKERS = ("worker-1", "worker-2")

#: The jobs that run again and again, and how often.
EVERY_MS = {"tick": 1_000, "report": 5_000}

#: The job that is cut short: due once, and four seconds long.
BILLING_STEPS = 8
STEP_MS = 500
BILLING_LEASE_MS = 4_000

JOBS = (*EVERY_MS, "billing")

#: The demo ends by itself after this, should everything else fail.
LONGEST_MS = 60_000
