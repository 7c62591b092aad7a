"""What an aim may let befall somebody; ``aiming.py`` has the whole vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from aiming import IT, Struck
from kernel import EPOCH_MS
from network import Weather

__all__ = [
    "Again",
    "CutOff",
    "Forget",
    "HoldUp",
    "Kill",
    "Late",
    "LetGo",
    "Lose",
    "Pause",
    "Refuse",
    "Restart",
    "RunNow",
    "StandStill",
    "Start",
    "StepClock",
    "StepStore",
    "Stop",
    "StopInside",
    "StoreAway",
    "StoreEmpty",
]


@dataclass(frozen=True)
class Lose:
    """The request, or where it is done the answer, is lost."""

    def __call__(self, struck: Struck) -> None:
        struck.the_call().lost = True


@dataclass(frozen=True)
class Late:
    """The request, or where it is done the answer, takes so much longer. A request whose sender has given up is done
    all the same.

    Args:
        to_the_end: a claim reaches the store at the very end of its window.
    """

    ms: int = 0
    to_the_end: bool = False

    def __call__(self, struck: Struck) -> None:
        call = struck.the_call()
        call.late_ms = self.ms
        if self.to_the_end:
            request = call.values[0]
            call.late_ms = request.slot_ms + request.window_ms - EPOCH_MS - struck.fleet.kernel.now_ms


@dataclass(frozen=True)
class HoldUp:
    """The request is held up until ``LetGo``, whatever becomes of its sender."""

    def __call__(self, struck: Struck) -> None:
        call = struck.the_call()
        call.held = True
        struck.fleet.held.append(call)


@dataclass(frozen=True)
class LetGo:
    """What was held up is done at this very step."""

    def __call__(self, struck: Struck) -> None:
        held, struck.fleet.held = struck.fleet.held, []
        for call in held:
            call.line.done_now(call)


@dataclass(frozen=True)
class Again:
    """The call is done once more, so much later."""

    ms: int

    def __call__(self, struck: Struck) -> None:
        struck.the_call().again_ms = self.ms


@dataclass(frozen=True)
class Refuse:
    """The call fails at once, and not by its time-out."""

    error: type[Exception] = ConnectionRefusedError

    def __call__(self, struck: Struck) -> None:
        assert struck.call is not None
        struck.call.refused = self.error


@dataclass(frozen=True)
class Kill:
    whom: str = IT

    def __call__(self, struck: Struck) -> None:
        for host in struck.hosts(self.whom):
            struck.fleet.kill(host)


@dataclass(frozen=True)
class Pause:
    ms: int
    whom: str = IT

    def __call__(self, struck: Struck) -> None:
        for host in struck.hosts(self.whom):
            struck.fleet.pause(host, self.ms)


@dataclass(frozen=True)
class Stop:
    """As a deploy does; the process ends when the stop has returned."""

    timeout: str = "10s"
    whom: str = IT

    def __call__(self, struck: Struck) -> None:
        for host in struck.hosts(self.whom):
            struck.fleet.stop(host, self.timeout)


@dataclass(frozen=True)
class StopInside:
    """The handler stops its own scheduler, and goes on."""

    timeout: str = "10s"

    def __call__(self, struck: Struck) -> None:
        assert struck.host is not None
        struck.fleet.stop_inside(struck.host, self.timeout)


@dataclass(frozen=True)
class Restart:
    """The scheduler is stopped and started again, in one process."""

    timeout: str = "0s"
    whom: str = IT

    def __call__(self, struck: Struck) -> None:
        for host in struck.hosts(self.whom):
            struck.fleet.restart(host, self.timeout)


@dataclass(frozen=True)
class CutOff:
    ms: int
    whom: str = IT

    def __call__(self, struck: Struck) -> None:
        fleet = struck.fleet
        for host in struck.hosts(self.whom):
            fleet.change_weather(host, Weather(cut_off=True))
            fleet.later(self.ms, lambda host=host: fleet.change_weather(host, fleet.fair_weather()))


@dataclass(frozen=True)
class StepClock:
    ms: int
    whom: str = IT

    def __call__(self, struck: Struck) -> None:
        for host in struck.hosts(self.whom):
            struck.fleet.step_clock(host, self.ms)


@dataclass(frozen=True)
class RunNow:
    """Somebody asks for a manual run."""

    whom: str = IT
    once: str | None = None

    def __call__(self, struck: Struck) -> None:
        for host in struck.hosts(self.whom):
            struck.fleet.run_now(host, struck.fleet.jobs[0].name, self.once)


@dataclass(frozen=True)
class StandStill:
    """The processor is taken from this one thread, for so long."""

    ms: int

    def __call__(self, struck: Struck) -> None:
        assert struck.host is not None
        now_ms = struck.fleet.kernel.now_ms
        struck.host.paused_ms.append((now_ms, now_ms + self.ms))
        struck.host.unable.append([now_ms, now_ms + self.ms])
        struck.fleet.kernel.sleep(self.ms)


@dataclass(frozen=True)
class StoreAway:
    ms: int

    def __call__(self, struck: Struck) -> None:
        struck.fleet.server_stops()
        struck.fleet.later(self.ms, struck.fleet.server_returns)


@dataclass(frozen=True)
class StoreEmpty:
    """The store comes back with nothing kept."""

    def __call__(self, struck: Struck) -> None:
        struck.fleet.a_life_ends()
        struck.fleet.server.lose_everything()


@dataclass(frozen=True)
class StepStore:
    """The store's clock is stepped: nobody's conduct can be judged by true time."""

    ms: int

    def __call__(self, struck: Struck) -> None:
        struck.fleet.server.clock.offset_ms += self.ms


@dataclass(frozen=True)
class Forget:
    """Somebody has the store forget the job."""

    def __call__(self, struck: Struck) -> None:
        fleet = struck.fleet
        fleet.a_life_ends()
        host = fleet.hosts[0]
        fleet.kernel.spawn(host.where, lambda: host.scheduler._store.forget(fleet.jobs[0].name))


@dataclass(frozen=True)
class Start:
    """So many new hosts, one after another."""

    hosts: int = 1

    def __call__(self, struck: Struck) -> None:
        for _ in range(self.hosts):
            struck.fleet.hosts.append(struck.fleet.new_host())
