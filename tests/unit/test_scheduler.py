"""The scheduler as its users see it."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import pytz
from fakes import ScriptedBackend
from other import Other
from parts import job_of
from world import REAL_SECONDS, World

from anarchon import (
    BackendError,
    ConfigurationError,
    JobNotRegistered,
    MemoryBackend,
    RunContext,
    RunRefused,
    Scheduler,
)
from anarchon.durations import to_ms
from anarchon.events import EVENT_TYPES

READS = {"time", "active", "history"}


def nothing(ctx: RunContext) -> None:
    pass


def long(ctx: RunContext) -> None:
    """Goes on until it is told to stop."""
    ctx.signal.wait()
    ctx.raise_if_cancelled()


# -- registering


def test_registering_chains_and_decorates(world: World) -> None:
    a = world.scheduler()

    @a.cron("decorated", "@daily")
    def decorated(ctx: RunContext) -> str:
        return "as it was"

    @a.every("decorated-too", "1m")
    def decorated_too() -> str:
        return "as it was"

    assert a.every("one", "10s", nothing).cron("two", "0 8 * * 1-5", nothing) is a
    assert [job.name for job in a.jobs()] == ["decorated", "decorated-too", "one", "two"]
    assert decorated(None) == decorated_too() == "as it was"  # type: ignore[arg-type]


def test_a_name_is_registered_once(world: World) -> None:
    a = world.scheduler().every("x", "10s", nothing)
    for register in (
        lambda: a.every("x", "10s", nothing),
        lambda: a.cron("x", "@daily", nothing),
        lambda: a.every("x", "1m"),
    ):
        with pytest.raises(ConfigurationError, match="A job named 'x' is registered already"):
            register()


def test_two_decorators_of_one_name_clash_when_the_second_is_applied(world: World) -> None:
    a = world.scheduler()
    first, second = a.every("x", "10s"), a.every("x", "10s")
    first(nothing)
    with pytest.raises(ConfigurationError, match="registered already"):
        second(nothing)


@pytest.mark.parametrize(
    ("register", "words"),
    [
        (lambda a: a.every("", "10s", nothing), "name must not be empty"),
        (lambda a: a.every("a b", "10s", nothing), "white space"),
        (lambda a: a.every(3, "10s", nothing), "name must be text"),
        (lambda a: a.every(["x"], "10s", nothing), "name must be text"),
        (lambda a: a.every("x", "soon", nothing), "interval must be a duration"),
        (lambda a: a.every("x", 0, nothing), "interval must be at least 10ms"),
        (lambda a: a.cron("x", "61 * * * *", nothing), "minute"),
        (lambda a: a.every("x", "10s", 3), "must be callable"),
        (lambda a: a.every("x", "10s", lambda a, b: None), "must take the context or nothing"),
        (lambda a: a.every("x", "10s")(3), "must be callable"),
        (lambda a: a.every("x", "10s", nothing, jitter="10s"), "jitter must be less than the interval"),
        (lambda a: a.every("x", "10s", nothing, lease="1s", heartbeat="1s"), "heartbeat must be at most"),
    ],
)
def test_what_is_wrong_is_refused_at_once_and_nothing_is_registered(world: World, register: Any, words: str) -> None:
    a = world.scheduler(jitter=0.001)
    with pytest.raises(ConfigurationError, match=words):
        register(a)
    assert a.jobs() == []


def test_the_backend_is_told_the_bound_of_each_jobs_lease(world: World) -> None:
    world.scheduler().every("x", "10s", nothing, lease="12s").every("y", "10s", nothing)
    assert world.backend.bounds == [4_000, 10_000]


def test_a_backend_whose_time_outs_are_too_long_refuses_the_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(limit_ms: int) -> None:
        raise ConfigurationError("too long")

    monkeypatch.setattr(world.backend, "bound_calls", refuse)
    a = world.scheduler()
    with pytest.raises(ConfigurationError, match="too long"):
        a.every("x", "10s", nothing)
    assert a.jobs() == []


def test_a_job_that_is_registered_after_the_start_is_started(world: World) -> None:
    a = world.scheduler()
    a.start()
    a.every("x", "10s", nothing)
    world.pass_time("10s")
    assert a.heard.words() == ["start", "success"]


def test_a_job_that_is_registered_after_the_stop_waits_for_the_next_start(world: World) -> None:
    a = world.scheduler()
    a.start()
    world.run(lambda: a.stop())
    a.every("x", "10s", nothing)
    world.pass_time("10s")
    assert a.heard == []
    a.start()
    world.pass_time("10s")
    assert a.heard.words() == ["start", "success"]


# -- starting and stopping


def test_starting_twice_is_starting_once(world: World) -> None:
    a = world.scheduler().every("x", "10s", nothing)
    assert a.start() is a.start() is a
    world.pass_time("10s")
    assert a.heard.words() == ["start", "success"]


def test_stop_is_safe_before_start_and_twice(world: World) -> None:
    a = world.scheduler().every("x", "10s", nothing)
    assert a.stop() is True
    a.start()
    world.settle()
    assert world.run(lambda: a.stop()) is True
    assert world.run(lambda: a.stop()) is True
    assert world.alive() == 0


def test_start_after_stop_works(world: World) -> None:
    a = world.scheduler().every("x", "10s", nothing)
    for _ in range(3):
        a.start()
        world.pass_time("10s")
        world.run(lambda: a.stop())
        world.pass_time("10s")
    assert a.heard.words() == ["start", "success"] * 3


def test_start_after_a_stop_that_ran_out_of_time_works_and_the_next_stop_waits_for_both(world: World) -> None:
    """
    1. a run does not heed its signal: stop returns False
    2. start makes new parts; the old run goes on, and is in the way of its job's new slots
    3. the next stop waits for the old run too
    """
    gate = world.clock.event()
    a = world.scheduler().every("x", "10s", lambda: world.clock.wait(gate, None))
    a.start()
    world.pass_time("10s")
    assert world.run(lambda: a.stop("1s")) is False
    a.start()
    world.pass_time("9s")
    assert a.heard.words() == ["start", "skip overlap"]
    stopping = world.spawn(lambda: a.stop())
    world.pass_time("1s")
    assert not stopping.done
    gate.set()
    world.settle()
    assert stopping.result() is True
    assert world.alive() == 0


def test_as_a_context_manager_it_is_started_inside_and_stopped_at_the_end(world: World) -> None:
    a = world.scheduler().every("x", "10s", nothing)

    def use() -> None:
        with a as inside:
            assert inside is a
            world.clock.wait(world.clock.event(), 15_000)

    world.run(use)
    assert a.heard.words() == ["start", "success"]
    assert world.alive() == 0


@pytest.mark.parametrize("timeout", ["soon", -1, True, "1.5s", object()])
def test_a_bad_timeout_is_refused_and_nothing_is_stopped(world: World, timeout: Any) -> None:
    a = world.scheduler().every("x", "10s", nothing)
    a.start()
    with pytest.raises(ConfigurationError, match="timeout must"):
        a.stop(timeout)
    with pytest.raises(ConfigurationError, match="timeout must"):
        a.run_forever(timeout)
    world.pass_time("10s")
    assert a.heard.words() == ["start", "success"]


def test_fifty_starts_and_stops_leave_no_thread_and_no_run_behind(world: World) -> None:
    a = world.scheduler().every("x", "10s", nothing).every("y", "10s", nothing)
    for _ in range(50):
        a.start()
        world.pass_time("3s")
        assert world.run(lambda: a.stop()) is True
        assert world.alive() == 0
    assert a.heard.words("start") == ["success"] * 2 * 15


def test_fifty_real_starts_and_stops_leave_no_thread() -> None:
    """As above, on the host's own clock."""
    scheduler = Scheduler(MemoryBackend()).every("x", "10ms", nothing, jitter=0)
    others = set(threading.enumerate())
    for _ in range(50):
        scheduler.start()
        assert scheduler.stop(timeout=None) is True
        for thread in set(threading.enumerate()) - others:
            thread.join(REAL_SECONDS)  # a stop waits a few seconds for them; a busy machine may need more
        assert set(threading.enumerate()) <= others


def test_starts_and_stops_on_many_threads_at_once_do_no_harm(world: World) -> None:
    a = world.scheduler().every("x", "1s", nothing)

    def back_and_forth() -> None:
        for _ in range(25):
            a.start()
            a.stop()

    tasks = [world.spawn(back_and_forth) for _ in range(4)]
    world.until(lambda: all(task.done for task in tasks))
    for task in tasks:
        task.result()
    assert world.run(lambda: a.stop()) is True
    assert world.alive() == 0
    a.start()
    world.pass_time("1s")
    assert "start" in a.heard.words()


def test_the_stores_connections_are_closed_when_all_is_over_and_not_before(world: World) -> None:
    gate = world.clock.event()
    a = world.scheduler().every("x", "10s", lambda: world.clock.wait(gate, None))
    a.start()
    world.pass_time("10s")
    world.run(lambda: a.stop("1s"))
    assert world.backend.closed == 0
    gate.set()
    world.settle()
    world.run(lambda: a.stop())
    assert world.backend.closed == 1


# -- stopping from inside


@pytest.mark.parametrize("options", [{}, {"timeout": "1h"}])
def test_a_handler_may_stop_the_scheduler_and_does_not_wait_for_itself(world: World, options: dict[str, Any]) -> None:
    stopped: list[bool] = []
    other = world.clock.event()
    a = world.scheduler()

    def handler(ctx: RunContext) -> None:
        world.clock.wait(other, None)
        stopped.append(a.stop())
        ctx.raise_if_cancelled()

    a.every("x", "10s", handler, **options).every("y", "10s", lambda ctx: (other.set(), long(ctx)))
    a.start()
    world.pass_time("10s")
    assert stopped == [True]
    assert sorted(a.heard.words("start")) == ["interrupted stop"] * 2
    assert world.run(lambda: a.stop()) is True
    assert world.alive() == 0


def test_a_handler_that_stopped_the_scheduler_keeps_its_lease_while_it_goes_on(world: World) -> None:
    """
    1. a handler stops the scheduler, and goes on for minutes
    2. its heartbeat goes on, and the next stop waits for it
    """
    a = world.scheduler()
    gate = world.clock.event()

    def handler() -> None:
        assert a.stop() is True
        world.clock.wait(gate, None)

    a.every("x", "10s", handler)
    a.start()
    world.pass_time("5m")
    assert world.store.active("x")[0].lease_left > 20
    stopping = world.spawn(lambda: a.stop())
    world.pass_time("10s")
    assert not stopping.done
    gate.set()
    world.settle()
    assert stopping.result() is True
    assert a.heard.words() == ["start", "success"]
    assert world.alive() == 0


def test_after_a_stop_from_its_last_handler_the_scheduler_can_be_used_again(world: World) -> None:
    a = world.scheduler()
    a.every("x", "10s", lambda ctx: a.stop() if ctx.trigger != "manual" else None)
    a.start()
    world.pass_time("10s")
    assert world.run(lambda: a.run_now("x")).status == "success"
    a.start()
    world.pass_time("10s")
    assert a.heard.words() == ["start", "success"] * 3


def test_two_handlers_that_stop_at_once_do_not_wait_for_each_other(world: World) -> None:
    stopped: list[bool] = []
    begun: list[RunContext] = []
    both = world.clock.event()
    a = world.scheduler()

    def handler(ctx: RunContext) -> None:
        begun.append(ctx)
        if len(begun) == 2:
            both.set()
        world.clock.wait(both, None)
        stopped.append(a.stop(timeout=None))

    a.every("x", "10s", handler).every("y", "10s", handler)
    a.start()
    world.pass_time("10s")
    assert stopped == [True, True]


def test_a_handler_left_behind_may_stop_the_scheduler(world: World) -> None:
    stopped: list[bool] = []
    a = world.scheduler()

    def handler(ctx: RunContext) -> None:
        ctx.signal.wait()  # over its timeout
        stopped.append(a.stop("1m"))

    a.every("x", "10s", handler, timeout="1s")
    a.start()
    assert world.until(lambda: stopped) == 11_000
    assert stopped == [True]


@pytest.mark.parametrize("type", EVENT_TYPES)
def test_a_listener_may_stop_the_scheduler_whatever_it_listens_to(world: World, type: str) -> None:
    a = world.scheduler()
    stopped: list[bool] = []

    def interrupted(ctx: RunContext) -> None:
        ctx._cancel("lease-lost")
        ctx.raise_if_cancelled()

    handlers: dict[str, Any] = {"failure": lambda: 1 / 0, "interrupted": interrupted}
    a.every("x", "10s", handlers.get(type, nothing))
    a.on(type, lambda event: stopped.append(a.stop("1m")))
    if type == "skip":
        world.script.next("claim", lambda: Other(world).hold(job_of("x")))
    if type == "error":
        world.script.next("claim", "fail")
    a.start()
    world.pass_time("10s")
    assert stopped == [True]
    assert world.run(lambda: a.stop()) is True
    assert world.alive() == 0
    last = {"start": "interrupted stop", "interrupted": "interrupted lease-lost", "skip": "skip taken"}
    assert a.heard.words()[-1] == last.get(type, type)


def test_a_listener_on_a_timers_own_thread_may_stop_the_scheduler(world: World) -> None:
    a = world.scheduler()
    stopped: list[bool] = []
    a.on("skip", lambda event: stopped.append(a.stop("1m")))
    a.every("x", "10s", nothing).every("y", "10s", nothing)
    a.start()
    world.settle()
    world.clock.advance("1h")
    world.settle()
    assert set(stopped) == {True}
    assert world.run(lambda: a.stop()) is True
    assert world.alive() == 0


def test_a_stop_in_a_listener_while_another_stop_waits_is_no_deadlock(world: World) -> None:
    a = world.scheduler()
    stopped: list[bool] = []
    a.on("interrupted", lambda event: stopped.append(a.stop(timeout=None)))
    a.every("x", "10s", long).every("y", "10s", long)
    a.start()
    world.pass_time("10s")
    assert world.run(lambda: a.stop(timeout=None)) is True
    assert stopped == [True, True]
    assert world.alive() == 0


# -- run_forever


def test_run_forever_ends_with_a_stop_elsewhere(world: World) -> None:
    a = world.scheduler().every("x", "10s", long)
    running = world.spawn(lambda: a.run_forever())
    world.pass_time("10s")
    assert a.heard.words() == ["start"]
    assert world.run(lambda: a.stop()) is True
    world.settle()
    assert running.result() is True
    assert a.heard.words() == ["start", "interrupted stop"]
    assert world.alive() == 0


def test_run_forever_says_that_a_run_did_not_end_in_time(world: World) -> None:
    gate = world.clock.event()
    a = world.scheduler().every("x", "10s", lambda: world.clock.wait(gate, None))
    running = world.spawn(lambda: a.run_forever("2s"))
    world.pass_time("10s")
    world.spawn(lambda: a.stop("1s"))
    world.until(lambda: running.done)
    assert running.result() is False
    gate.set()


def test_run_forever_waits_for_the_handler_that_stopped_it(world: World) -> None:
    """
    1. a handler stops the scheduler, and winds down for ten seconds
    2. run_forever is woken: it must wait for that handler, not end the process under it
    """
    a = world.scheduler()

    def handler() -> None:
        a.stop()
        world.clock.wait(world.clock.event(), 10_000)

    a.every("x", "10s", handler)
    running = world.spawn(lambda: a.run_forever())
    world.pass_time("19s")
    assert not running.done
    world.pass_time("1s")
    assert running.result() is True
    assert a.heard.words() == ["start", "success"]


def test_run_forever_can_be_called_again(world: World) -> None:
    a = world.scheduler().every("x", "10s", nothing)
    for _ in range(2):
        running = world.spawn(lambda: a.run_forever())
        world.pass_time("10s")
        world.run(lambda: a.stop())
        world.settle()
        assert running.result() is True
    assert a.heard.words() == ["start", "success"] * 2


# -- asking


def test_jobs_tell_everything_about_them(world: World) -> None:
    a = world.scheduler(timezone="Europe/Athens", lease="12s")
    a.every("sync", timedelta(minutes=1), nothing, timeout="30s").cron("digest", "0 8 * * 1-5", nothing)
    sync, digest = a.jobs()
    assert (sync.name, sync.kind, sync.schedule, sync.timezone) == ("sync", "every", "1m", "Europe/Athens")
    assert (digest.kind, digest.schedule) == ("cron", "0 8 * * 1-5")
    assert sync.options["lease"] == 12.0 and sync.options["timeout"] == 30.0
    assert digest.next_run == pytz.timezone("Europe/Athens").localize(datetime(2026, 1, 1, 8, 0))
    assert sync.next_run is not None and sync.next_run.utcoffset() == timedelta(hours=2)
    assert sync.to_dict()["next_run"] == "2026-01-01T02:01:00+02:00"


def test_next_run_is_on_the_stores_clock_once_that_is_known(world: World) -> None:
    a = world.scheduler("a", clock=world.skewed_clock("1h")).every("x", "10s", nothing)
    assert a.next_run("x") == datetime(2026, 1, 1, 1, 0, 10, tzinfo=timezone.utc)
    a.start()
    world.settle()
    assert a.next_run("x") == datetime(2026, 1, 1, 0, 0, 10, tzinfo=timezone.utc)


def test_a_job_without_a_next_slot_is_listed_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Never:
        kind, text, interval_ms = "cron", "never", None

        def next_after(self, instant_ms: int) -> int:
            raise OverflowError("no slot within a hundred years")

    a = world.scheduler().every("x", "10s", nothing)
    object.__setattr__(a._jobs["x"], "schedule", Never())
    assert [(job.name, job.next_run) for job in a.jobs()] == [("x", None)]
    with pytest.raises(OverflowError):
        a.next_run("x")


def test_an_unknown_job_is_an_error_that_names_the_nearest(world: World) -> None:
    a = world.scheduler().every("digest", "10s", nothing)
    for call in (a.next_run, a.run_now):
        with pytest.raises(JobNotRegistered, match="No job named 'digst' .* Did you mean 'digest'"):
            call("digst")
        with pytest.raises(LookupError):
            call("zzz")


def test_history_and_last_run_tell_of_any_job_newest_first_and_need_no_start(world: World) -> None:
    other = Other(world)
    for _ in range(3):
        other.finish(job_of("elsewhere"), other.hold(job_of("elsewhere")))
        world.pass_time("10s")
    a = world.scheduler()
    slots = [to_ms(record.slot) for record in a.history("elsewhere")]
    assert slots == sorted(slots, reverse=True) and len(slots) == 3
    assert a.history("elsewhere", limit=1) == [a.last_run("elsewhere")]
    assert (a.history("nobody"), a.last_run("nobody"), a.active("nobody")) == ([], None, [])


def test_active_tells_what_runs_where(world: World) -> None:
    Other(world, "b").hold(job_of("elsewhere"))
    world.pass_time("10s")
    [run] = world.scheduler().active("elsewhere")
    assert (run.instance_id, run.attempt, run.trigger, run.lease_left) == ("b", 1, "scheduled", 20.0)


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, "5", None, 1_000_001, 10**30])
def test_a_bad_limit_is_refused(world: World, limit: Any) -> None:
    with pytest.raises(ConfigurationError, match="limit must be a whole number"):
        world.scheduler().history("x", limit)


def test_a_bad_name_is_refused_by_what_reads_too(world: World) -> None:
    a = world.scheduler()
    for call in (a.history, a.last_run, a.active, a.forget):
        with pytest.raises(ConfigurationError, match="job's name"):
            call("a b")


def test_a_store_that_is_away_is_a_backend_error_for_whoever_reads(world: World) -> None:
    a = world.scheduler()
    world.script.down = True
    for call in (a.history, a.last_run, a.active, a.forget):
        with pytest.raises(BackendError, match="the store is down"):
            call("x")


def test_a_reader_never_writes(world: World) -> None:
    Other(world).hold(job_of("x"))
    reader = world.scheduler()
    reader.history("x")
    reader.last_run("x")
    reader.active("x")
    assert reader.jobs() == []
    for call in (reader.next_run, reader.run_now):
        with pytest.raises(JobNotRegistered):
            call("x")
    assert reader.stop() is True
    assert {verb for verb, *_ in world.script.calls} <= READS
    assert world.backend.closed == 1
    assert world.alive() == 0


def test_a_reader_that_is_started_without_jobs_writes_nothing_either(world: World) -> None:
    reader = world.scheduler()
    reader.start()
    world.pass_time("1h")
    assert world.script.calls == []


def test_forget_removes_a_job_that_is_not_registered_and_refuses_one_that_is(world: World) -> None:
    other = Other(world)
    other.finish(job_of("gone"), other.hold(job_of("gone")))
    a = world.scheduler().every("here", "10s", nothing)
    a.forget("gone")
    assert a.history("gone") == []
    with pytest.raises(ConfigurationError, match="Job 'here' is registered"):
        a.forget("here")


# -- run_now


def test_run_now_needs_no_start_and_returns_the_record(world: World) -> None:
    a = world.scheduler().every("x", "10s", nothing)
    record = world.run(lambda: a.run_now("x"))
    assert (record.status, record.trigger, record.instance_id) == ("success", "manual", "a")
    assert a.history("x") == [record]
    world.run(lambda: a.stop())
    assert world.run(lambda: a.run_now("x")).status == "success"


@pytest.mark.parametrize("skew", ["1h", "-1h"])
def test_run_now_works_on_a_host_whose_clock_is_an_hour_wrong(world: World, skew: str) -> None:
    """A manual claim is late after five minutes on the store's clock: its slot must be reckoned on that clock."""
    a = world.scheduler("a", clock=world.skewed_clock(skew)).every("x", "10s", nothing)
    record = world.run(lambda: a.run_now("x"))
    assert (record.status, to_ms(record.slot)) == ("success", world.now_ms)


def test_what_a_handler_raises_is_in_the_record_and_not_raised(world: World) -> None:
    def handler() -> None:
        raise SystemExit("bad")

    record = world.run(lambda: world.scheduler().every("x", "10s", handler).run_now("x"))
    assert (record.status, record.error) == ("failed", "SystemExit: bad")


def test_run_now_in_a_handler_of_another_job_works(world: World) -> None:
    a = world.scheduler()
    a.every("x", "10s", lambda: statuses.append(a.run_now("y").status)).every("y", "1h", nothing)
    statuses: list[str] = []
    a.start()
    world.pass_time("10s")
    assert statuses == ["success"]


def test_run_now_beside_its_own_scheduled_run_is_refused(world: World) -> None:
    a = world.scheduler().every("x", "10s", long)
    a.start()
    world.pass_time("10s")
    with pytest.raises(RunRefused, match="already running on 'a'"):
        a.run_now("x")


def test_run_now_waits_no_longer_than_it_is_told_and_the_run_goes_on(world: World) -> None:
    def handler(ctx: Any) -> None:
        ctx.signal.wait(5)

    a = world.scheduler().every("x", "1h", handler)
    asked_ms = world.now_ms
    assert world.run(lambda: a.run_now("x", wait="2500ms")) is None
    assert world.now_ms - asked_ms == 2_500
    assert [run.trigger for run in a.active("x")] == ["manual"]
    world.pass_time("3s")
    assert [(record.status, record.duration) for record in a.history("x")] == [("success", 5.0)]


def test_run_now_that_waits_returns_the_record_of_a_run_that_ends_in_time(world: World) -> None:
    a = world.scheduler().every("x", "1h", nothing)
    asked_ms = world.now_ms
    assert world.run(lambda: a.run_now("x", wait="10s")) == a.last_run("x") is not None
    assert world.now_ms == asked_ms


def test_run_now_with_no_wait_only_starts_the_run(world: World) -> None:
    a = world.scheduler().every("x", "10s", long)
    asked_ms = world.now_ms
    assert world.run(lambda: a.run_now("x", wait=0)) is None
    assert world.now_ms == asked_ms
    with pytest.raises(RunRefused, match="already running on 'a'"):
        a.run_now("x", wait=0)


def test_a_manual_run_that_nobody_waits_for_is_told_to_stop_like_any_other(world: World) -> None:
    a = world.scheduler().every("x", "1h", lambda ctx: ctx.signal.wait(60) and ctx.raise_if_cancelled())
    world.run(lambda: a.run_now("x", wait="1s"))
    assert world.run(lambda: a.stop())
    assert [(record.trigger, record.status) for record in a.history("x")] == [("manual", "interrupted")]


def test_run_now_with_a_wait_that_is_no_duration_runs_nothing(world: World) -> None:
    a = world.scheduler().every("x", "1h", nothing)
    with pytest.raises(ConfigurationError, match="wait must be a duration"):
        a.run_now("x", wait="soon")
    assert a.history("x") == []


def test_run_now_while_the_scheduler_stops_is_refused(world: World) -> None:
    gate = world.clock.event()
    a = world.scheduler().every("x", "10s", lambda: world.clock.wait(gate, None))
    a.start()
    world.pass_time("10s")
    world.spawn(lambda: a.stop())
    with pytest.raises(RunRefused, match="Job 'x' was not run: this scheduler is stopping"):
        a.run_now("x")
    gate.set()


def test_a_process_that_ends_with_its_stop_runs_nothing_from_it_on(world: World) -> None:
    gate = world.clock.event()
    a = world.scheduler().every("x", "10s", lambda: world.clock.wait(gate, None)).every("y", "10s", nothing)
    record = a._run_unless_stopped("y")
    assert record is not None and record.trigger == "manual"
    a.start()
    assert a._run_unless_stopped("y") is not None
    world.pass_time("10s")
    world.spawn(lambda: a.stop())
    for _ in ("while it stops", "when it has stopped"):
        with pytest.raises(RunRefused, match="Job 'y' was not run: this scheduler is stopping") as refused:
            a._run_unless_stopped("y")
        assert refused.value.stopping
        gate.set()
        world.settle()
    with pytest.raises(JobNotRegistered):
        a._run_unless_stopped("z")
    a.start()
    assert a._run_unless_stopped("y") is not None


# -- listeners, identity


def test_listeners_may_come_on_many_threads_at_once() -> None:
    scheduler = Scheduler(MemoryBackend())
    barrier = threading.Barrier(8)

    def add() -> None:
        barrier.wait(REAL_SECONDS)
        for _ in range(200):
            scheduler.on("start", print)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(REAL_SECONDS)
    assert len(scheduler._events._listeners["start"]) == 1_600


def test_an_instance_has_a_name_of_its_own_or_the_one_that_it_was_given() -> None:
    import os
    import socket

    one, two = Scheduler(MemoryBackend()), Scheduler(MemoryBackend())
    assert one.instance_id != two.instance_id
    assert one.instance_id.startswith(f"{socket.gethostname()}-{os.getpid()}-")
    assert Scheduler(MemoryBackend(), instance_id="pod-7").instance_id == "pod-7"


def test_the_repr_says_who_it_is_and_never_more(world: World) -> None:
    assert repr(Scheduler(MemoryBackend(), instance_id="pod-7")) == "<Scheduler pod-7 jobs=0 backend=<MemoryBackend>>"


# -- two schedulers, two clocks


@pytest.mark.parametrize(("skew_a", "skew_b"), [("1h", "0s"), ("-30m", "30m"), ("1h", "-1h")])
def test_clocks_an_hour_apart_give_one_run_a_slot_and_none_early(world: World, skew_a: str, skew_b: str) -> None:
    """Each process also wins its share: it is as good a backup as any."""
    ran: list[tuple[str, int, int]] = []

    def handler(ctx: RunContext) -> None:
        ran.append((ctx.instance_id, to_ms(ctx.slot), world.now_ms))

    start_ms = world.now_ms
    for name, skew in (("a", skew_a), ("b", skew_b)):
        scheduler = world.scheduler(name, clock=world.skewed_clock(skew), jitter="500ms")
        scheduler.every("x", "10s", handler)
        scheduler.start()
    world.pass_time("5m11s")
    assert [slot for _, slot, _ in ran] == [start_ms + 10_000 * n for n in range(1, 32)]
    assert all(0 <= at - slot <= 500 for _, slot, at in ran)
    assert min(sum(name == who for who, _, _ in ran) for name in "ab") >= 5


def test_a_clock_that_is_stepped_while_it_runs_changes_nothing(world: World) -> None:
    ran: list[int] = []
    clock = world.skewed_clock()
    a = world.scheduler("a", clock=clock).every("x", "10s", lambda ctx: ran.append(to_ms(ctx.slot)))
    start_ms = world.now_ms
    a.start()
    for step in ("1h", "-2h", "30m", "365d", "-364d"):
        world.pass_time("25s")
        clock.step_wall(step)
    world.pass_time("25s")
    assert ran == [start_ms + 10_000 * n for n in range(1, 16)]


def test_a_claim_only_scheduler_goes_by_its_hosts_clock(world: World) -> None:
    from fakes import FirstComeBackend

    ran: list[int] = []
    clock = world.skewed_clock("1h")
    a = world.scheduler("a", FirstComeBackend(), clock=clock)
    a.every("x", "10s", lambda ctx: ran.append(to_ms(ctx.slot)))
    a.start()
    world.pass_time("10s")
    assert ran == [clock.now_ms()]


def test_each_scheduler_has_its_own_way_to_a_shared_backend(world: World) -> None:
    backends = [ScriptedBackend(world.store) for _ in range(2)]
    a, b = (world.scheduler(name, backend).every("x", "10s", nothing) for name, backend in zip("ab", backends))
    a.start()
    b.start()
    backends[0].script.down = True
    world.pass_time("1m")
    assert set(a.heard.words()) == {"error", "skip late"}
    assert b.heard.words() == ["start", "success"] * 6
