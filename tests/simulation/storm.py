"""What befalls a fleet, drawn from its seed; and what the oracle says of it afterwards."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce

from fleet_of_hosts import DEPLOYED, JOBS, Fleet, Host
from kernel import EPOCH_MS, Killed
from network import Weather

from anarchon.durations import from_ms, to_ms
from anarchon.records import RunRecord
from anarchon.schedules import Schedule, cron, every
from anarchon.testing import Fault, Ran, SlotOracle

__all__ = ["Outcome", "weather_a_storm"]

#: How long nothing befalls the fleet, at first and at last.
_CALM_MS = 40_000

_NOISE = timedelta(milliseconds=700)


@dataclass(frozen=True)
class Outcome:
    """What came of one seed."""

    seed: int
    faults: list[Fault]
    slots: int
    ran: int
    explained: Counter[str]
    attempts: Counter[int]
    reached: Counter[str]
    switches: int
    raised: list[BaseException]


def weather_a_storm(seed: int, seconds: int = 600) -> Outcome:
    """Runs a fleet through a storm of so many seconds of its time, and judges it."""
    raised: list[BaseException] = []
    with _raised_in_threads(raised):
        fleet = Fleet(seed)
        storm = _Storm(fleet, fleet.kernel.now_ms + seconds * 1000)
        storm.blow()
        outcome = _judged(seed, fleet, storm)
        fleet.close()
    return replace(outcome, raised=raised)


@contextmanager
def _raised_in_threads(raised: list[BaseException]) -> Iterator[None]:
    """Keeps what a thread of the library did not handle, but for the end of its host."""

    def keep(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, Killed):
            raised.append(args.exc_value)

    before, threading.excepthook = threading.excepthook, keep
    try:
        yield
    finally:
        threading.excepthook = before


class _Storm:
    """The controller's part: it waits, and lets something happen."""

    def __init__(self, fleet: Fleet, until_ms: int) -> None:
        self.fleet = fleet
        self.until_ms = until_ms
        #: When the store lost everything, and the histories that it had until then.
        self.lost_everything: list[tuple[datetime, dict[str, list[RunRecord]]]] = []
        self.upgrades: list[datetime] = []
        self._draw = fleet.kernel.random
        #: What is over at an instant: a function to call.
        self._later: list[tuple[int, int, object]] = []
        self._version = 0

    def blow(self) -> None:
        kernel = self.fleet.kernel
        kernel.sleep(_CALM_MS)
        acts = {
            self._kill: 10,
            self._stop: 8,
            self._pause: 10,
            self._cut_off: 8,
            self._lose_requests: 6,
            self._lose_answers: 8,
            self._answer_late: 5,
            self._stop_server: 3,
            self._step_clock: 6,
            self._run_now: 8,
            self._upgrade: 1,
        }
        if self._draw.randrange(5) == 0:
            acts[self._lose_everything] = 1
        while kernel.now_ms < self.until_ms:
            kernel.sleep(self._draw.randint(200, 6_000))
            self._draw.choices(list(acts), list(acts.values()))[0]()
        self._clear_up()
        kernel.sleep(_CALM_MS)

    def _clear_up(self) -> None:
        """The weather gets fair, and whoever is missing comes back."""
        kernel = self.fleet.kernel
        kernel.sleep(15_000)
        while len(self.fleet.hosts) < 3:
            self._replace()

    def _host(self) -> Host:
        return self._draw.choice(self.fleet.hosts)

    def _after(self, ms: int, call: object) -> None:
        """Lets something be over, on a task that no fault touches."""
        kernel = self.fleet.kernel

        def wait_and_call() -> None:
            kernel.sleep(ms)
            call()  # type: ignore[operator]

        kernel.spawn(kernel.controller.where, wait_and_call)

    def _replace(self) -> None:
        if len(self.fleet.hosts) < 6:
            self.fleet.hosts.append(self.fleet.new_host(self._version))

    # -- what may happen

    def _kill(self) -> None:
        if len(self.fleet.hosts) > 1:
            self.fleet.kill(self._host())
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
        self.fleet.run_now(self._host(), self._draw.choice(JOBS).name)

    def _upgrade(self) -> None:
        """A deploy that changes a schedule: one host after another."""
        if self._version == 0:
            self._version = 1
            self.upgrades.append(self.fleet.at())
            self.fleet.reached["fault: deploy"] += 1
            for number, host in enumerate(list(self.fleet.hosts)):
                self._after(1_000 + 1_500 * number, lambda old=host: self._renew(old))

    def _renew(self, old: Host) -> None:
        if old in self.fleet.hosts:
            self.fleet.stop(old, "5s")
            self._replace()


def _judged(seed: int, fleet: Fleet, storm: _Storm) -> Outcome:
    begin, end = from_ms(EPOCH_MS + 5_000), fleet.at() - timedelta(seconds=25)
    ran = fleet.log()
    away = _away(fleet)
    paused = {host.name: host.paused for host in fleet.all_hosts}
    cut_off = {host.name: _instants(_unable(fleet, host, fleet.kernel.now_ms)) for host in fleet.all_hosts}
    lives = [*storm.lost_everything, (end, fleet.histories())]
    faults: list[Fault] = []
    slots = runs = 0
    explained: Counter[str] = Counter()
    attempts: Counter[int] = Counter()
    # What a store has forgotten cannot be held against it: each of its lives is judged by itself.
    for number, (until, records) in enumerate(lives):
        since = lives[number - 1][0] if number else begin
        last = number == len(lives) - 1
        life = (since if number else from_ms(0), fleet.at() if last else until)
        if number:
            since += timedelta(seconds=40)
        if not last:
            until -= timedelta(seconds=150)
        if since >= until:
            continue
        oracle = SlotOracle(_NOISE)
        for plan in JOBS:
            schedule: Schedule = cron(plan.schedule) if " " in plan.schedule else every(plan.schedule)
            names_of = ("overlap", "max_attempts", "max_late", "jitter", "lease", "timeout")
            options = {name: plan.options[name] for name in names_of if name in plan.options}
            oracle.expect(plan.name, _slots(schedule, since, until), **options)
        oracle.expect("deployed", _deployed(storm, since, until), max_late="4s", jitter="50ms", lease="3s")
        mine = [one for one in ran if life[0] <= one.started_at <= life[1]]
        found = oracle.judge(
            [one for one in mine if one.job != "deployed" or _is_judged(storm, one)],
            records,
            away=away,
            died=fleet.died,
            paused=paused,
            cut_off=cut_off,
        )
        faults += [fault for fault in found.faults if since <= fault.slot <= until]
        slots += found.slots
        runs += found.ran
        explained += found.explained
        attempts += found.attempts
    return Outcome(seed, faults, slots, runs, explained, attempts, fleet.reached, fleet.kernel.switches, [])


def _slots(schedule: Schedule, since: datetime, until: datetime) -> list[datetime]:
    slots = []
    slot_ms = schedule.next_after(to_ms(since) - 1)
    while slot_ms <= to_ms(until):
        slots.append(from_ms(slot_ms))
        slot_ms = schedule.next_after(slot_ms)
    return slots


def _deployed(storm: _Storm, since: datetime, until: datetime) -> list[datetime]:
    """While two versions are about, what is due is what both say."""
    old, new = (every(text) for text in DEPLOYED)
    if not storm.upgrades:
        return _slots(old, since, until)
    begin, end = storm.upgrades[0], storm.upgrades[0] + _ROLLOUT
    both = set(_slots(old, begin, end)) & set(_slots(new, begin, end))
    return [
        *_slots(old, since, min(until, begin)),
        *(slot for slot in sorted(both) if since <= slot <= until),
        *_slots(new, max(since, end), until),
    ]


_ROLLOUT = timedelta(seconds=30)


def _is_judged(storm: _Storm, one: Ran) -> bool:
    if not storm.upgrades:
        return True
    during = storm.upgrades[0] <= one.slot <= storm.upgrades[0] + _ROLLOUT
    return not during or to_ms(one.slot) % 6_000 == 0


def _away(fleet: Fleet) -> list[tuple[datetime, datetime]]:
    """When no host could have claimed anything."""
    end_ms = fleet.kernel.now_ms + 1
    everyone = [_spans(_unable(fleet, host, end_ms)) for host in fleet.all_hosts]
    nobody = reduce(_both, everyone) if everyone else []
    away = [*nobody, *_spans((begin, end if end is not None else end_ms) for begin, end in fleet.server_away)]
    return _instants(away)


def _instants(spans: list[tuple[int, int]]) -> list[tuple[datetime, datetime]]:
    return [(from_ms(EPOCH_MS + begin), from_ms(EPOCH_MS + end)) for begin, end in spans]


def _unable(fleet: Fleet, host: Host, end_ms: int) -> list[tuple[int, int]]:
    spans = [(begin or 0, end_ms if end is None else end) for begin, end in host.unable]
    spans.append((0, host.made_ms))
    gone = fleet.gone_ms.get(host.name)
    if gone is not None:
        spans.append((gone, end_ms))
    return spans


def _spans(spans: object) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):  # type: ignore[call-overload]
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _both(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) < min(b, d)]
