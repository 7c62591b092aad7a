"""Brings an aim about: a fleet whose every step may be struck at, and the storm that does so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime

from aimed_line import AimedLine, OnItsWay, steps_of_the_library
from aiming import Aim, Strike, Struck
from closely import CloseConduct
from fleet_of_hosts import Call, Fleet, Host
from judging import Life, judged
from kernel import EPOCH_MS
from network import Weather
from storm import Outcome, raised_in_threads

from anarchon import Event
from anarchon.durations import from_ms
from anarchon.records import RunRecord
from anarchon.testing import Judgement

__all__ = ["AimedFleet", "weather_an_aimed_storm"]

_EVENTS = ("skip", "error", "start", "success", "failure", "interrupted")

#: How often the controller looks whether it has seen enough.
_LOOK_MS = 1_000


def weather_an_aimed_storm(aim: Aim, seed: int, hasty: bool = False) -> Outcome:
    """As ``weather_a_storm``. Its outcome also says which of the aim's strikes have struck."""
    raised: list[BaseException] = []
    with raised_in_threads(raised):
        fleet = AimedFleet(aim, seed)
        with steps_of_the_library(fleet):
            fleet.begin()
            while fleet.kernel.now_ms < aim.seconds * 1000 and not (hasty and (fleet.complaints or raised)):
                fleet.kernel.sleep(_LOOK_MS)
            if not (hasty and fleet.complaints):
                fleet.a_life_ends(after_all=True)
                if aim.true_time:
                    fleet.judge_conduct()
                    fleet.judge_what_is_left()
            judgement = Judgement([], 0, 0, Counter(), Counter())
            if aim.judged and not (hasty and fleet.complaints):
                judgement = judged(fleet, fleet.lives, None)
            fleet.close()
    return Outcome(seed, judgement, fleet.reached, fleet.kernel.switches, raised, fleet.complaints)


class AimedFleet(Fleet):
    """Hosts that can be struck at every step. It plays when ``begin`` is called."""

    deploys = False
    compare_every = 1

    def __init__(self, aim: Aim, seed: int) -> None:
        self.aim = aim
        self.skews_ms, self.drifts_ppm = aim.skews_ms, aim.drifts_ppm
        self.lives: list[Life] = []
        self.held: list[OnItsWay] = []
        self._last: Host | None = None
        self._strikes = list(aim.strikes)
        self._times = 0
        super().__init__(seed, aim.hosts, aim.jobs)
        self.judges_conduct = aim.true_time

    def begin(self) -> None:
        self._await_the_next()

    def fair_weather(self) -> Weather:
        return Weather(longest_ms=self.aim.longest_ms)

    def new_line(self, host: Host) -> AimedLine:
        return AimedLine(self, host)

    def new_conduct(self, host: Host) -> CloseConduct:
        return CloseConduct(host)

    def new_host(self, version: int = 0) -> Host:
        host = super().new_host(version)
        if self.aim.listener_raises is not None:
            for type in _EVENTS:
                host.scheduler.on(type, self._raises)
        return host

    def _raises(self, event: Event) -> None:
        assert self.aim.listener_raises is not None
        raise self.aim.listener_raises("a listener's own fault")

    # -- striking

    def begun(self, host: Host, call: Call) -> None:
        self.take("handler", host, {"host": host.name, "job": call.ctx.job, "attempt": call.ctx.attempt}, None)

    def take(self, step: str, host: Host | None, facts: dict[str, object], call: OnItsWay | None) -> None:
        """A thread is at a step: whatever is aimed at it strikes."""
        for one in self.aim.always:
            if one.when.fits(step, facts):
                self._strike(one, Struck(self, host, call), "always")
        if self._strikes and self._strikes[0].when.fits(step, facts):
            self._times += 1
            if self._times == self._strikes[0].when.nth:
                self._strike_the_next(Struck(self, host, call))

    def later(self, ms: int, call: Callable[[], object]) -> None:
        """On a task that no fault touches."""

        def wait_and_call() -> None:
            self.kernel.sleep(ms)
            call()

        self.kernel.spawn(self.kernel.controller.where, wait_and_call)

    def _strike_the_next(self, struck: Struck) -> None:
        self._times = 0
        self._last = struck.host
        one = self._strikes.pop(0)
        number = len(self.aim.strikes) - len(self._strikes)
        self._await_the_next()
        self._strike(one, struck, str(number))

    def _await_the_next(self) -> None:
        if self._strikes and self._strikes[0].when.step is None:
            self.later(self._strikes[0].when.wait_ms, lambda: self._strike_the_next(Struck(self, self._last)))

    def _strike(self, one: Strike, struck: Struck, which: str) -> None:
        self.reached[f"struck: {which}"] += 1
        for act in one.acts:
            act(struck)

    # -- what befalls them

    def kill(self, host: Host) -> None:
        if host in self.hosts:
            super().kill(host)

    def stop(self, host: Host, timeout: str) -> None:
        # One that has been told to stop is not told twice.
        if host in self.hosts:
            super().stop(host, timeout)

    def stop_inside(self, host: Host, timeout: str) -> None:
        """On the thread of a handler: its scheduler stops, and does not wait for that run itself."""
        host.conduct.stops()
        self.gone_ms.setdefault(host.name, self.kernel.now_ms)
        host.unable.append([self.kernel.now_ms, None])
        before_ms = self.kernel.now_ms
        host.scheduler.stop(timeout)
        if self.kernel.now_ms - before_ms > 1_000:
            self.complain(f"{host.name}: a stop from a handler waited {self.kernel.now_ms - before_ms} ms for that run")

    def restart(self, host: Host, timeout: str) -> None:
        """In one process. What comes due just then is for others, or for catching up."""
        assert isinstance(host.conduct, CloseConduct)
        conduct = host.conduct
        if host not in self.hosts:
            return  # it has been told to stop, for good

        def stop_and_start() -> None:
            host.unable.append([self.kernel.now_ms, self.kernel.now_ms])
            conduct.stops()
            conduct.stopped(host.scheduler.stop(timeout))
            conduct.starts_again()
            host.scheduler.start()

        self.kernel.spawn(host.where, stop_and_start)

    def a_life_ends(self, after_all: bool = False) -> None:
        """The store is about to lose all that it keeps, or the storm is over."""
        began_at: datetime = self.lives[-1].ended_at if self.lives else from_ms(EPOCH_MS)
        kept: dict[str, list[RunRecord]] = self.histories()
        self.lives.append(Life(began_at, self.at(), kept, bool(self.lives), not after_all))

    def judge_what_is_left(self) -> None:
        """A run whose lease is over is taken over by a host that knows of it, and is well."""
        for plan in self.jobs:
            for run in self.server.store.active(plan.name):
                for host in self.hosts:
                    assert isinstance(host.conduct, CloseConduct)
                    if run.lease_left == 0 and host.conduct.leaves(run):
                        self.complain(f"{host.name}: {run.job} {run.run_id} is nobody's, and is not taken over")
