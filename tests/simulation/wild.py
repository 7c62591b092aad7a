"""Storms of which no oracle could say what ought to have run: there the model judges the store, and nobody the runs.

Options differ from host to host, histories are short, and manual runs are asked for by several hosts. Calls are done
again, up to a minute and a half after they were sent. In every other seed the store's own clock is stepped; in the
others each host is judged by its conduct as well. That reaches rules which a storm of ``storm.py`` reaches seldom or
never.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fleet_of_hosts import Fleet, JobPlan
from network import Weather
from storm import Outcome, Storm, raised_in_threads

from anarchon.testing import Judgement

__all__ = ["weather_a_wild_storm"]

_ANY = dict(overlap=("skip", "allow"), max_attempts=(1, 2, 3), history_limit=(1, 2, 5, 50))

WILD_JOBS = (
    JobPlan("quick", "2s", (20, 400), options=dict(lease="3s", max_late="5s", jitter="100ms"), varied=_ANY),
    JobPlan("allow", "4s", (100, 9_000), 300, 300, dict(lease="2s", max_late="10s", overlap="allow", jitter="200ms")),
    JobPlan("long", "5s", (500, 14_000), stubborn=300, options=dict(max_late="20s", jitter="300ms"), varied=_ANY),
    JobPlan("single", "3s", (100, 5_000), stubborn=200, options=dict(lease="2s", max_late="6s", max_attempts=1)),
    JobPlan("slow", "30s", (500, 25_000), 100, 300, dict(lease="2s", max_late="20s", jitter="300ms"), _ANY),
    JobPlan("hurried", "* * * * *", (1_000, 30_000), 100, options=dict(lease="4s", max_late="2s", catch_up="20s")),
)


def weather_a_wild_storm(seed: int, seconds: int = 600, hasty: bool = False) -> Outcome:
    """As ``weather_a_storm``, with other jobs and more that befalls them; the judgement says nothing."""
    raised: list[BaseException] = []
    with raised_in_threads(raised):
        fleet = Fleet(seed, jobs=WILD_JOBS)
        until_ms = fleet.kernel.now_ms + seconds * 1000
        storm = WildStorm(fleet, until_ms, lambda: hasty and bool(fleet.complaints or raised))
        storm.blow()
        fleet.histories()
        if not storm.steps_the_stores_clock:
            fleet.judge_conduct()
        fleet.close()
    nothing = Judgement([], 0, 0, Counter(), Counter())
    return Outcome(seed, nothing, fleet.reached, fleet.kernel.switches, raised, fleet.complaints)


class WildStorm(Storm):
    """More befalls them than an oracle could judge."""

    def __init__(self, fleet: Fleet, until_ms: int, enough: Callable[[], bool]) -> None:
        super().__init__(fleet, until_ms, enough)
        self.steps_the_stores_clock = fleet.kernel.seed % 2 == 1
        fleet.judges_conduct = not self.steps_the_stores_clock
        self._names = 0

    def _acts(self) -> dict[Callable[[], object], int]:
        acts = super()._acts() | {
            self._do_requests_very_late: 6,
            self._do_requests_again: 20,
            self._ask_again_for_a_dead_run: 8,
            self._stand_still_long: 4,
            self._fall_silent: 12,
            self._run_now_everywhere: 12,
            self._start_without_a_store: 3,
        }
        if self.steps_the_stores_clock:
            acts[self._step_the_stores_clock] = 10
        return acts

    def _do_requests_very_late(self) -> None:
        self._weather(Weather(late_requests=400, latest_ms=self._draw.choice([3_000, 12_000, 90_000])), 8_000)

    def _do_requests_again(self) -> None:
        self._weather(Weather(done_again=300, latest_ms=self._draw.choice([3_000, 12_000, 12_000, 90_000])), 12_000)

    def _ask_again_for_a_dead_run(self) -> None:
        """Its first holder dies, and whoever asked asks another host, once more."""
        if len(self.fleet.hosts) > 2:
            self._names += 1
            job, once = self._draw.choice(self.fleet.jobs).name, f"once{self._names}"
            first = self._host()
            self.fleet.run_now(first, job, once)
            self._after(self._draw.randint(20, 1_000), lambda: first in self.fleet.hosts and self._kill(first))
            for _ in range(3):
                later_ms = self._draw.randint(1_000, 15_000)
                self._after(later_ms, lambda: self.fleet.run_now(self._host(), job, once))

    def _stand_still_long(self) -> None:
        self.fleet.pause(self._host(), self._draw.choice([30_000, 50_000]))

    def _fall_silent(self) -> None:
        """Nobody is heard for longer than the leases, while calls of before are done once more."""
        cut_off_ms, fair_ms = self._draw.randint(100, 3_000), self._draw.randint(6_000, 14_000)
        hosts = [host for host in self.fleet.hosts if host.line.weather.fair]
        for host in hosts:
            self.fleet.change_weather(host, Weather(done_again=700, latest_ms=14_000))

        def change(weather: Weather) -> None:
            for host in hosts:
                self.fleet.change_weather(host, weather)

        def ask_at_once() -> None:
            change(Weather())
            for plan in self.fleet.jobs:
                self.fleet.run_now(self._host(), plan.name)

        self._after(cut_off_ms, lambda: change(Weather(cut_off=True)))
        self._after(fair_ms, ask_at_once)

    def _run_now_everywhere(self) -> None:
        """Somebody asks twice for one run, and meets another host."""
        self._names += 1
        job = self._draw.choice(self.fleet.jobs).name
        for host in self.fleet.hosts:
            if self._draw.randrange(2):
                self.fleet.run_now(host, job, f"once{self._names}")

    def _start_without_a_store(self) -> None:
        if self.fleet.server.up:
            self._stop_server()
            self._replace()

    def _step_the_stores_clock(self) -> None:
        step_ms = self._draw.choice([300, 2_000, 5_000, 20_000, 3_600_000])
        self.fleet.server.clock.offset_ms += self._draw.choice([-step_ms, step_ms])
        self.fleet.reached["fault: store's clock stepped"] += 1
