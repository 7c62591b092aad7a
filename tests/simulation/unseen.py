"""The mutants that the simulation does not see, with the reason; their named tests kill them all the same."""

from __future__ import annotations

__all__ = ["UNSEEN"]

_FEW = "not seen: no storm has so many calls on their way at once"

UNSEEN: dict[str, str] = {
    "11: manual runs have a slot's window": "not seen: an instance itself asks for a manual run with five minutes",
    "12: the line is for manual runs too": "not seen: no instance asks for a manual run as a backup",
    "leases: a renewal keeps the old length": "not seen: an instance renews with the length that it claimed with",
    "finish: whoever released may finish": "not seen: no instance finishes what it has released",
    "finish: whoever released still holds the run": "not seen: no instance finishes what it has released",
    "release: a manual run stays unfinished": "not seen: no instance releases a manual run",
    "a lost lease is told once": "not seen: a signal that is set twice is set",
    "a run that nobody started is watched only while it may start": (
        "not seen: the store answers ``late`` when it may not start any more"
    ),
    "an answer that was on its way when the clock was set is not believed": (
        "not seen: the store of a storm has a clock of its own, and not this host's"
    ),
    "of samples that are as short the mean counts": "not seen: a slot that is late by a millisecond is no fault",
    "a difference between the clocks is told once": "not seen: it changes what is logged and not what is done",
    "a straggler blocks what was on its way to be granted by a store without leases": (
        "not seen: the store of a storm has leases"
    ),
    "a cluster has a clock a node": "not seen: the store of a storm is no cluster",
    "a fire that raises does not end the timer": "not seen: nothing raises there in a storm",
    "nothing is watched after a stop": "not seen: a watch that began after a stop would ask nothing any more",
    "calls in flight are bounded": _FEW,
    "questions hold up no holder of a lease": _FEW,
}
