"""A fleet in virtual time: hosts that run the real scheduler, and a storm that is drawn from the seed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from conduct import Conduct
from kernel import EPOCH_MS, Kernel, SimChance, SimClock, SimEvent, SimThreads, Where
from network import Line, Server, Weather

from anarchon import AnarchonError, Event, RunContext, RunRefused, Scheduler
from anarchon.durations import from_ms
from anarchon.records import RunRecord
from anarchon.sources import Sources
from anarchon.testing import Ran

__all__ = ["JOBS", "Call", "Fleet", "Host", "JobPlan"]


@dataclass(frozen=True)
class JobPlan:
    """A job as the simulation registers it, and what its handler does."""

    name: str
    schedule: str
    work_ms: tuple[int, int]
    fails: int = 0  # chances of a thousand
    stubborn: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    #: Options of which each host draws one value, as while deploys of many versions are about.
    varied: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    #: What it raises where it fails.
    error: type[BaseException] = ValueError


#: Short leases, so that much happens; each job is there for a rule that it alone would reach.
JOBS = (
    JobPlan("quick", "2s", (20, 400), options=dict(lease="3s", max_late="5s", jitter="100ms")),
    JobPlan("long", "5s", (500, 14_000), stubborn=200, options=dict(lease="3s", max_late="20s", jitter="300ms")),
    JobPlan("allow", "4s", (100, 7_000), options=dict(lease="3s", max_late="10s", overlap="allow", jitter="200ms")),
    JobPlan(
        "frail",
        "3s",
        (100, 4_000),
        fails=200,
        stubborn=200,
        options=dict(lease="2s", max_late="6s", max_attempts=2, timeout="2s", jitter="100ms"),
    ),
    JobPlan("minutely", "* * * * *", (1_000, 30_000), fails=100, options=dict(lease="4s", catch_up="2m", jitter="1s")),
)
#: A job whose interval a deploy changes.
DEPLOYED = ("2s", "3s")


class Host:
    """One process that runs a scheduler; after a kill or a stop another takes its place, under another name."""

    def __init__(self, fleet: Fleet, name: str, version: int) -> None:
        kernel = fleet.kernel
        self.fleet = fleet
        self.name = name
        self.version = version
        self.where = Where(name)
        self.clock = SimClock(kernel, kernel.random.choice(fleet.skews_ms), kernel.random.choice(fleet.drifts_ppm))
        self.line = fleet.new_line(self)
        sources = Sources(self.clock, SimChance(kernel), lambda clock: SimThreads(kernel, self.where, clock))
        self.scheduler = Scheduler(self.line, instance_id=name, sources=sources)
        for plan in fleet.jobs:
            register = self.scheduler.cron if " " in plan.schedule else self.scheduler.every
            drawn = {name: kernel.random.choice(values) for name, values in plan.varied.items()}
            options = {"history_limit": 100_000, **plan.options, **drawn}
            register(plan.name, plan.schedule, fleet.handler(plan, self), **options)
        if fleet.deploys:
            deployed = JobPlan("deployed", DEPLOYED[version], (20, 300))
            options = dict(lease="3s", max_late="4s", jitter="50ms", history_limit=100_000)
            self.scheduler.every(deployed.name, deployed.schedule, fleet.handler(deployed, self), **options)
        for type in ("skip", "error", "start", "success", "failure", "interrupted"):
            self.scheduler.on(type, self.heard)
        #: When it could not have claimed anything: from an instant, to one, or to the end.
        self.unable: list[list[int | None]] = []
        self.weather_span: list[int | None] | None = None
        self.made_ms = kernel.now_ms
        self.paused_ms: list[tuple[int, int]] = []
        self.conduct = self.line.conduct = fleet.new_conduct(self)
        kernel.spawn(self.where, self.scheduler.start)

    def heard(self, event: Event) -> None:
        if not self.where.killed:
            self.fleet.reached[f"event: {event.type}" + (f" {event.reason}" if event.reason else "")] += 1
            self.conduct.hears(event)


SKEWS_MS = (0, 0, 40, -40, 3_000, -3_000, 3_600_000, -3_600_000)
DRIFTS_PPM = (0, 0, 100, -100, 500)


class Fleet:
    """The hosts, their store, and all that they did."""

    #: How wrong a host's clocks may be, and whether there is the job whose schedule a deploy changes.
    skews_ms: tuple[int, ...] = SKEWS_MS
    drifts_ppm: tuple[int, ...] = DRIFTS_PPM
    deploys = True
    compare_every = 50

    def __init__(self, seed: int, hosts: int = 4, jobs: tuple[JobPlan, ...] = JOBS) -> None:
        self.kernel = Kernel(seed)
        self.jobs = jobs
        #: How often each thing that can happen did.
        self.reached: Counter[str] = Counter()
        #: What must not be, as far as it is seen at once; the oracle judges afterwards.
        self.complaints: list[str] = []
        #: Whether each host's conduct is judged: not where the store's clock does not tell the true time.
        self.judges_conduct = True
        self.server = Server(self.kernel, lambda what: self.complain(f"the store: {what}"), self.compare_every)
        self.server_away: list[list[int | None]] = []
        self.ran: list[Call] = []
        self.died: dict[str, datetime] = {}
        #: Until when each host that is gone took new work, and until when it did anything at all.
        self.gone_ms: dict[str, int] = {}
        self.ended_ms: dict[str, int] = {}
        self._names = 0
        self.all_hosts: list[Host] = []
        self.hosts = [self.new_host() for _ in range(hosts)]

    # -- hosts

    def new_host(self, version: int = 0) -> Host:
        self._names += 1
        host = Host(self, f"host{self._names}", version)
        self.all_hosts.append(host)
        return host

    def new_line(self, host: Host) -> Line:
        return Line(self.kernel, self.server, host.where, self.reached)

    def new_conduct(self, host: Host) -> Conduct:
        return Conduct(host)

    def begun(self, host: Host, call: Call) -> None:
        """A handler has just been called, on this thread."""

    def handler(self, plan: JobPlan, host: Host) -> Callable[[RunContext], None]:
        kernel = self.kernel

        def handle(ctx: RunContext) -> None:
            call = Call(ctx, kernel.now_ms)
            self.ran.append(call)
            host.conduct.begins(call)
            try:
                self.begun(host, call)
                work_ms = kernel.random.randint(*plan.work_ms)
                if kernel.random.randrange(1000) < plan.stubborn:
                    kernel.sleep(work_ms)
                else:
                    host.clock.wait(ctx.signal, work_ms)
                    ctx.raise_if_cancelled()
                if kernel.random.randrange(1000) < plan.fails:
                    raise plan.error("it did not work out")
            except BaseException as error:
                call.raised = error
                raise
            finally:
                # Not where its process is gone: then nobody has seen it end.
                if not host.where.killed:
                    call.ended_ms, call.told = kernel.now_ms, ctx.reason

        return handle

    def complain(self, what: str) -> None:
        self.complaints.append(f"after {self.kernel.now_ms / 1000} s: {what}")

    # -- what befalls them

    def kill(self, host: Host) -> None:
        self.hosts.remove(host)
        self.reached["fault: kill"] += 1
        self._dies(host)

    def stop(self, host: Host, timeout: str) -> None:
        """Asks it to stop, as a deploy does; its process ends a while after."""
        self.hosts.remove(host)
        self.gone_ms[host.name] = self.kernel.now_ms
        self.reached["fault: stop"] += 1

        def stop() -> None:
            host.conduct.stops()
            ended = host.scheduler.stop(timeout)
            host.conduct.stopped(ended)
            # The process ends, whatever still went on in it.
            self._dies(host)

        self.kernel.spawn(host.where, stop)

    def pause(self, host: Host, ms: int) -> None:
        self.kernel.pause(host.where, ms)
        host.paused_ms.append((self.kernel.now_ms, self.kernel.now_ms + ms))
        host.unable.append([self.kernel.now_ms, self.kernel.now_ms + ms])
        self.reached["fault: pause"] += 1

    def change_weather(self, host: Host, weather: Weather) -> None:
        host.line.weather = weather
        if host.weather_span is not None:
            host.weather_span[1] = self.kernel.now_ms
            host.weather_span = None
        if not weather.fair:
            host.weather_span = [self.kernel.now_ms, None]
            host.unable.append(host.weather_span)
            self.reached["fault: weather"] += 1

    def server_stops(self) -> None:
        self.server.up = False
        self.server_away.append([self.kernel.now_ms, None])
        self.reached["fault: store away"] += 1

    def server_returns(self) -> None:
        self.server.up = True
        self.server_away[-1][1] = self.kernel.now_ms

    def step_clock(self, host: Host, ms: int) -> None:
        host.clock.offset_ms += ms
        host.conduct.clock_stepped()
        self.reached["fault: clock stepped"] += 1

    def run_now(self, host: Host, job: str, once: str | None = None) -> None:
        def call() -> None:
            try:
                host.scheduler._run_once(job, None, once)
                self.reached["manual run"] += 1
            except RunRefused:
                self.reached["manual run refused"] += 1
            except AnarchonError:
                self.reached["manual run without a store"] += 1

        self.kernel.spawn(host.where, call)

    def _dies(self, host: Host) -> None:
        for call in self.ran:
            if call.ended_ms is None and call.ctx.instance_id == host.name:
                call.told = call.ctx.reason
        self.gone_ms.setdefault(host.name, self.kernel.now_ms)
        self.died[host.name] = self.at()
        self.ended_ms[host.name] = self.kernel.now_ms
        self.kernel.kill(host.where)

    # -- afterwards

    def judge_conduct(self) -> None:
        """Each host by itself; and what is drawn at random, by all of them together."""
        drawn: dict[str, list[int]] = defaultdict(list)
        for host in self.all_hosts:
            host.conduct.judge()
            for what, times in host.conduct.drawn().items():
                drawn[what] += times
        for what, times in drawn.items():
            median = sorted(times)[len(times) // 2]
            if len(times) >= 20 and sum(abs(one - median) <= 10 for one in times) > 0.8 * len(times):
                self.complain(f"backups ask all at one time, {what}: after {median} ms")

    def close(self) -> None:
        """Ends every thread; what the fleet did is kept."""
        for host in self.all_hosts:
            self.kernel.kill(host.where)
        self.kernel.close()

    def at(self, later_ms: int = 0) -> datetime:
        """The true time, which is the store's."""
        return from_ms(EPOCH_MS + self.kernel.now_ms + later_ms)

    def histories(self) -> dict[str, list[RunRecord]]:
        """What the store keeps, by job, at the end of one of its lives."""
        names = [*(plan.name for plan in self.jobs), "deployed"]
        self.server.store.compare_what_is_kept(names)
        self.reached.update({f"line {line:>2}": times for line, times in self.server.store.lines.items()})
        return {name: self.server.store.history(name, 1_000_000) for name in names}

    def log(self) -> list[Ran]:
        return [call.ran() for call in self.ran]


@dataclass
class Call:
    """One call of a handler, in true time."""

    ctx: RunContext
    started_ms: int
    ended_ms: int | None = None
    told: str | None = None
    raised: BaseException | None = None

    @property
    def told_ms(self) -> int | None:
        """When its signal was set."""
        assert isinstance(self.ctx.signal, SimEvent)
        return self.ctx.signal.set_ms

    def ran(self) -> Ran:
        ctx = self.ctx
        return Ran(
            job=ctx.job,
            slot=ctx.slot,
            attempt=ctx.attempt,
            trigger=ctx.trigger,
            fence=ctx.fence,
            instance_id=ctx.instance_id,
            started_at=from_ms(EPOCH_MS + self.started_ms),
            ended_at=None if self.ended_ms is None else from_ms(EPOCH_MS + self.ended_ms),
            told=self.told,
        )
