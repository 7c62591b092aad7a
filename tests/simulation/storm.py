"""What befalls a fleet, drawn from its seed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from fleet_of_hosts import Fleet, Host
from judging import Life, judged
from kernel import EPOCH_MS, Killed
from network import Weather

from anarchon.durations import from_ms
from anarchon.records import RunRecord
from anarchon.testing import Judgement

__all__ = ["Outcome", "Storm", "raised_in_threads", "weather_a_storm"]

#: How long nothing befalls the fleet, at first and at last.
_CALM_MS = 40_000


@dataclass(frozen=True)
class Outcome:
    """What came of one seed.

    Attributes:
        raised: what a thread of the library did not handle.
        seen: what was seen to be wrong while it went on.
    """

    seed: int
    judgement: Judgement
    reached: Counter[str]
    switches: int
    raised: list[BaseException]
    seen: list[str]

    def complaints(self) -> list[str]:
        """All that must not be, each with the seed that shows it again."""
        return [f"seed {self.seed}: {fault}" for fault in (*self.seen, *self.judgement.faults, *map(repr, self.raised))]


def weather_a_storm(seed: int, seconds: int = 600, hasty: bool = False) -> Outcome:
    """Runs a fleet through a storm of so many seconds of its time, and judges it.

    Args:
        hasty: whether it is over with the first thing that is seen to be wrong.
    """
    raised: list[BaseException] = []
    with raised_in_threads(raised):
        fleet = Fleet(seed)
        storm = Storm(fleet, fleet.kernel.now_ms + seconds * 1000, lambda: hasty and bool(fleet.complaints or raised))
        storm.blow()
        fleet.judge_conduct()
        judgement = judged(fleet, storm.lives(), storm.upgraded_at)
        fleet.close()
    return Outcome(seed, judgement, fleet.reached, fleet.kernel.switches, raised, fleet.complaints)


@contextmanager
def raised_in_threads(raised: list[BaseException]) -> Iterator[None]:
    """Keeps what a thread of the library did not handle, but for the end of its host."""

    def keep(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, Killed):
            raised.append(args.exc_value)

    before, threading.excepthook = threading.excepthook, keep
    try:
        yield
    finally:
        threading.excepthook = before


class Storm:
    """The controller's part: it waits, and lets something happen."""

    def __init__(self, fleet: Fleet, until_ms: int, enough: Callable[[], bool]) -> None:
        self.fleet = fleet
        self.enough = enough
        self.until_ms = until_ms
        #: When the store lost everything, and the histories that it had until then.
        self.lost_everything: list[tuple[datetime, dict[str, list[RunRecord]]]] = []
        self.upgraded_at: datetime | None = None
        self._draw = fleet.kernel.random
        self._version = 0

    def blow(self) -> None:
        kernel = self.fleet.kernel
        kernel.sleep(_CALM_MS)
        acts = self._acts()
        if self._draw.randrange(5) == 0:
            acts[self._lose_everything] = 1
        while kernel.now_ms < self.until_ms and not self.enough():
            kernel.sleep(self._draw.randint(200, 6_000))
            self._draw.choices(list(acts), list(acts.values()))[0]()
        if not self.enough():
            self._clear_up()
            kernel.sleep(_CALM_MS)

    def _acts(self) -> dict[Callable[[], object], int]:
        """What may happen, and how often beside the others."""
        return {
            self._kill: 10,
            self._stop: 8,
            self._pause: 10,
            self._cut_off: 8,
            self._lose_requests: 6,
            self._do_requests_late: 6,
            self._lose_answers: 8,
            self._answer_late: 5,
            self._stop_server: 3,
            self._step_clock: 6,
            self._run_now: 8,
            self._upgrade: 1,
        }

    def lives(self) -> list[Life]:
        """The lives of the store, the last one up to now."""
        ends = [*self.lost_everything, (self.fleet.at(), self.fleet.histories())]
        starts = [from_ms(EPOCH_MS), *(lost_at for lost_at, _ in self.lost_everything)]
        return [
            Life(start, end, histories, after_a_loss=number > 0, before_a_loss=number < len(ends) - 1)
            for number, (start, (end, histories)) in enumerate(zip(starts, ends))
        ]

    def _clear_up(self) -> None:
        """The weather gets fair, and whoever is missing comes back."""
        kernel = self.fleet.kernel
        kernel.sleep(15_000)
        while len(self.fleet.hosts) < 3:
            self._replace()

    def _host(self) -> Host:
        return self._draw.choice(self.fleet.hosts)

    def _after(self, ms: int, call: Callable[[], object]) -> None:
        """Lets something be over, on a task that no fault touches."""
        kernel = self.fleet.kernel

        def wait_and_call() -> None:
            kernel.sleep(ms)
            call()

        kernel.spawn(kernel.controller.where, wait_and_call)

    def _replace(self) -> None:
        if len(self.fleet.hosts) < 6:
            self.fleet.hosts.append(self.fleet.new_host(self._version))

    # -- what may happen

    def _kill(self, host: Host | None = None) -> None:
        if len(self.fleet.hosts) > 1:
            self.fleet.kill(host or self._host())
            self._after(self._draw.randint(500, 15_000), self._replace)

    def _stop(self) -> None:
        if len(self.fleet.hosts) > 1:
            self.fleet.stop(self._host(), self._draw.choice(["0s", "1s", "10s"]))
            self._after(self._draw.randint(100, 5_000), self._replace)

    def _pause(self) -> None:
        self.fleet.pause(self._host(), self._draw.choice([100, 1_000, 4_000, 12_000]))

    def _cut_off(self) -> None:
        self._weather(Weather(cut_off=True), 8_000)

    def _lose_requests(self) -> None:
        self._weather(Weather(lost_requests=400), 8_000)

    def _do_requests_late(self) -> None:
        self._weather(Weather(late_requests=300), 8_000)

    def _lose_answers(self) -> None:
        self._weather(Weather(lost_answers=400), 8_000)

    def _answer_late(self) -> None:
        self._weather(Weather(late_answers=600, longest_ms=60), 8_000)

    def _weather(self, weather: Weather, longest_ms: int) -> None:
        host = self._host()
        if host.line.weather.fair:
            self.fleet.change_weather(host, weather)
            self._after(self._draw.randint(200, longest_ms), lambda: self.fleet.change_weather(host, Weather()))

    def _stop_server(self) -> None:
        if self.fleet.server.up:
            self.fleet.server_stops()
            self._after(self._draw.randint(100, 9_000), self.fleet.server_returns)

    def _lose_everything(self) -> None:
        self.lost_everything.append((self.fleet.at(), self.fleet.histories()))
        self.fleet.server.lose_everything()
        self.fleet.reached["fault: store restarted empty"] += 1

    def _step_clock(self) -> None:
        self.fleet.step_clock(self._host(), self._draw.choice([-3_600_000, -5_000, -300, 300, 5_000, 3_600_000]))

    def _run_now(self) -> None:
        self.fleet.run_now(self._host(), self._draw.choice(self.fleet.jobs).name)

    def _upgrade(self) -> None:
        """A deploy that changes a schedule: one host after another."""
        if self._version == 0:
            self._version = 1
            self.upgraded_at = self.fleet.at()
            self.fleet.reached["fault: deploy"] += 1
            for number, host in enumerate(list(self.fleet.hosts)):
                self._after(1_000 + 1_500 * number, lambda old=host: self._renew(old))

    def _renew(self, old: Host) -> None:
        if old in self.fleet.hosts:
            self.fleet.stop(old, "5s")
            self._replace()
