"""What a test of your own jobs needs, so that it never has to wait, and never has to trust.

``ManualClock`` is a clock that moves only when it is told to. Hand it to whatever takes a ``clock``: threads that wait
on it sleep until a test has moved the time past the end of their wait::

    >>> from anarchon.testing import ManualClock
    >>> clock = ManualClock()
    >>> before = clock.now_ms()
    >>> clock.advance("1h30m")
    >>> clock.now_ms() - before
    5400000

``RunLog`` writes down, outside the store, what really ran; ``SlotOracle`` judges it: which slots were missed, which ran
twice, what overlapped. The two believe nothing that the library says of itself.
"""

from __future__ import annotations

from anarchon.testing.manual_clock import ManualClock
from anarchon.testing.run_log import Ran, RunLog
from anarchon.testing.slot_oracle import Fault, Judgement, SlotOracle

__all__ = ["Fault", "Judgement", "ManualClock", "Ran", "RunLog", "SlotOracle"]
