"""Aimed storms: each knows which rare meeting it is after, and strikes there.

A storm that is drawn at random comes by a meeting of two things within a few milliseconds once in hours. An aimed one
waits for the one step and strikes at it: FoundationDB's simulator does so by its "buggify", and whoever searches the
states of a protocol does nothing else. All are written in one vocabulary:

when
    ``at("claim done", 2, mode="takeover")``: the second time that the store has decided on a claim in that mode, and
    its answer is yet to come. A call's life has the steps ``sent``, ``done`` and ``heard``; ``handler`` is the first
    step of a handler, and ``LeasedRun.run`` (or another method of the library) that of a thread about to call it.
    ``after(3_000)``: so many milliseconds after the strike before. Strikes come one after another.

what
    Of the call that takes the step: ``Lose``, ``Late``, ``Again``, ``Refuse``, ``HoldUp`` (until ``LetGo``). Of a host:
    ``Kill``, ``Pause``, ``Stop``, ``StopInside``, ``Restart``, ``CutOff``, ``StepClock``, ``RunNow``. Of a thread:
    ``StandStill``. Of the store: ``StoreAway``, ``StoreEmpty``, ``StepStore``, ``Forget``. Of the fleet: ``Start``.
    They are in ``acts.py``.

whom
    ``IT``, the host that takes the step (after a while: that took the last one); ``OTHERS``; ``ALL``; or one by its
    name: ``host1`` is the first.

Everything else is as in any storm: the scheduler is the real one, the seed draws latencies, jitter and who comes first,
and the same judges judge, more closely (``closely.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet_of_hosts import Host, JobPlan

if TYPE_CHECKING:
    from aimed import AimedFleet
    from aimed_line import OnItsWay

__all__ = ["ALL", "IT", "OTHERS", "Act", "Aim", "Strike", "Struck", "When", "after", "at", "strike"]

IT, OTHERS, ALL = "it", "the others", "all"


@dataclass(frozen=True)
class When:
    """The nth time that a step is taken that looks like this; or (no step) so long after the strike before."""

    step: str | None
    nth: int = 1
    like: tuple[tuple[str, object], ...] = ()
    wait_ms: int = 0

    def fits(self, step: str, facts: dict[str, object]) -> bool:
        return step == self.step and all(facts.get(name) == value for name, value in self.like)


def at(step: str, nth: int = 1, **like: object) -> When:
    """See the vocabulary above.

    Args:
        like: facts of the step that must be so: ``host``, ``job``, ``mode`` (of a claim: ``start``, ``takeover`` or
            ``manual``), ``attempt``, ``answer`` (an outcome or a verdict).
    """
    return When(step, nth, tuple(like.items()))


def after(ms: int) -> When:
    return When(None, wait_ms=ms)


@dataclass(frozen=True)
class Struck:
    """A strike, where it strikes: the host and the call that took the step, if it was one."""

    fleet: AimedFleet
    host: Host | None = None
    call: OnItsWay | None = None

    def hosts(self, whom: str) -> list[Host]:
        if whom == IT:
            assert self.host is not None
            return [self.host]
        if whom == OTHERS:
            return [host for host in self.fleet.hosts if host is not self.host]
        return [host for host in list(self.fleet.hosts) if whom in (ALL, host.name)]

    def the_call(self) -> OnItsWay:
        assert self.call is not None and self.host is not None
        now_ms = self.fleet.kernel.now_ms
        self.host.unable.append([now_ms, max(now_ms, self.call.gives_up_ms)])
        return self.call


#: What befalls somebody, there and then; it must not wait, but for a thread that is to stand still.
Act = Callable[[Struck], object]


@dataclass(frozen=True)
class Strike:
    when: When
    acts: tuple[Act, ...]


def strike(when: When, *acts: Act) -> Strike:
    return Strike(when, acts)


@dataclass(frozen=True)
class Aim:
    """A rare meeting, and how to bring it about.

    Attributes:
        jobs: the fleet's; a manual run is one of the first.
        strikes: one after another. always: each time that the step is taken.
        seconds: how long the storm is, of the fleet's time.
        longest_ms: how long a call is on its way, and so its answer.
        true_time: whether the store's clock tells the true time; else nobody's conduct is judged.
        judged: whether the oracle can say what ought to have run.
        listener_raises: what a listener of every event raises.
        sees: the mutants that it was written for.
    """

    jobs: tuple[JobPlan, ...]
    strikes: tuple[Strike, ...]
    always: tuple[Strike, ...] = ()
    hosts: int = 2
    seconds: int = 60
    skews_ms: tuple[int, ...] = (0,)
    drifts_ppm: tuple[int, ...] = (0,)
    longest_ms: int = 3
    true_time: bool = True
    judged: bool = True
    listener_raises: type[BaseException] | None = None
    sees: tuple[str, ...] = ()

    def library_steps(self) -> set[str]:
        steps = {one.when.step for one in (*self.strikes, *self.always)}
        return {step for step in steps if step is not None and "." in step}
