"""The lease runner: one branch per outcome, takeover, and what a start looks after.

Instance ``a`` is under test; ``b`` speaks to the store directly. Slots every ten seconds, lease 30 s, heartbeat 6 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes import Hang
from other import Other
from parts import Bench, job_of
from world import World

from anarchon import BackendError, RunContext, RunRefused
from anarchon.durations import to_ms
from anarchon.job import Job
from anarchon.records import ClaimReply, Outcome
from anarchon.runners.lease import LeaseRunner


class Lease(Bench):
    """A runner, and a handler that goes on until ``done`` is set or, if it heeds it, its signal."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.runner = LeaseRunner(self.store, self.parts)
        self.other = Other(world)
        self.contexts: list[RunContext] = []
        self.ends_at_once = True
        self.job = job_of("x", self.handler)
        self.asked: list[bool] = []

    def handler(self, ctx: RunContext) -> None:
        self.contexts.append(ctx)
        if not self.ends_at_once:
            ctx.signal.wait()
            ctx.raise_if_cancelled()

    def run(self, slot_ms: int | None = None, job: Job | None = None, window_ms: int = 60_000) -> None:
        slot_ms = self.world.now_ms if slot_ms is None else slot_ms
        self.asks.soon(lambda: self.runner.run(job or self.job, slot_ms, "scheduled", window_ms))
        self.world.settle()

    def recover(self, job: Job | None = None, ago_ms: int = 0) -> None:
        since_ms = self.world.clock.monotonic_ms() - ago_ms
        self.runner.recover(job or self.job, since_ms, self.asked.append)
        self.world.settle()

    def statuses(self, job: str = "x") -> list[tuple[str, int, str]]:
        """The history, oldest first: instance, attempt, status."""
        history = reversed(self.world.store.history(job, 50))
        return [(record.instance_id, record.attempt, record.status) for record in history]

    def finish_all(self) -> None:
        """Stops as the engine does."""
        self.asks.close()
        self.runner.close()
        self.runs.stop()
        self.world.run(lambda: self.runs.wait_until_over(None), "1h")


@pytest.fixture
def lease(world: World) -> Iterator[Lease]:
    lease = Lease(world)
    yield lease
    world.script.end()
    lease.finish_all()
    lease.end()


# -- one test an outcome


def test_won_runs_the_handler_and_stores_its_end(world: World, lease: Lease) -> None:
    lease.run()
    assert lease.heard.words() == ["start", "success"]
    context = lease.contexts[0]
    assert (context.attempt, context.trigger, to_ms(context.slot)) == (1, "scheduled", world.now_ms)
    [record] = world.store.history("x", 9)
    assert (record.status, record.fence, record.instance_id) == ("success", context.fence, "a")
    assert lease.heard[1].record == record
    assert [verb for verb, *_ in world.script.calls] == ["claim", "finish"]


def test_running_is_a_skip_that_names_the_holder_and_is_watched(world: World, lease: Lease) -> None:
    lease.other.hold(lease.job)
    lease.run()
    [skip] = lease.heard
    assert (skip.type, skip.reason, skip.holder, skip.run_id) == ("skip", "taken", "b", str(world.now_ms))
    world.until(lambda: lease.contexts, "1m")
    assert (lease.contexts[0].trigger, lease.contexts[0].attempt) == ("takeover", 2)
    assert lease.statuses() == [("b", 1, "lost"), ("a", 2, "success")]


def test_overlap_is_a_skip_and_the_older_run_is_watched(world: World, lease: Lease) -> None:
    older = lease.other.hold(lease.job)
    world.pass_time("10s")
    lease.run()
    [skip] = lease.heard
    assert (skip.reason, skip.holder) == ("overlap", "b")
    world.until(lambda: lease.contexts, "1m")
    assert (str(to_ms(lease.contexts[0].slot)), lease.contexts[0].attempt) == (older.run_id, 2)


def test_overlap_watches_the_newer_run_too_should_somebody_start_it(world: World, lease: Lease) -> None:
    """
    1. an older run is in the way of this slot
    2. it ends, and another instance starts this slot and dies
    3. this instance takes it over
    """
    older = lease.other.hold(lease.job)
    world.pass_time("10s")
    lease.run()
    slot_ms = world.now_ms
    lease.other.finish(lease.job, older)
    world.pass_time("2s")
    lease.other.hold(lease.job, slot_ms)
    world.until(lambda: lease.contexts, "2m")
    assert to_ms(lease.contexts[0].slot) == slot_ms
    assert lease.contexts[0].attempt == 2


def test_overlap_with_a_manual_run_does_not_watch_that_one(world: World, lease: Lease) -> None:
    lease.other.hold(lease.job, trigger="manual", run_id="manual-1")
    lease.run()
    assert lease.heard.words() == ["skip overlap"]
    world.pass_time("5m")
    assert lease.contexts == []
    assert {request.run_id for (request,) in world.script.sent("claim")} == {lease.heard[0].run_id}


def test_late_is_a_skip_and_nothing_is_watched(world: World, lease: Lease) -> None:
    lease.run(world.now_ms - 60_001)
    assert lease.heard.words() == ["skip late"]
    world.pass_time("5m")
    assert len(world.script.sent("claim")) == 1


def test_done_is_a_skip_and_nothing_is_watched(world: World, lease: Lease) -> None:
    lease.other.finish(lease.job, lease.other.hold(lease.job))
    lease.run()
    assert lease.heard.words() == ["skip taken"]
    world.pass_time("5m")
    assert len(world.script.sent("claim")) == 1


@pytest.mark.parametrize(("ago_ms", "reason"), [(20_000, "late"), (70_000, "taken")])
def test_a_slot_that_was_passed_is_late_only_if_it_was_asked_for_in_time(
    world: World, lease: Lease, ago_ms: int, reason: str
) -> None:
    slot_ms = world.now_ms - ago_ms
    lease.other.finish(lease.job, lease.other.hold(lease.job, slot_ms + 10_000, window_ms=600_000))
    lease.run(slot_ms)
    assert [(event.type, event.reason) for event in lease.heard] == [("skip", reason)]


def test_none_keeps_checking_while_the_run_may_start(world: World, lease: Lease) -> None:
    """
    1. this token has held the run before: a late repeat of its claim, after the lease was over and somebody else's too
    2. the answer is none: it never becomes a new attempt
    3. the run is watched like one that nobody has started
    """
    world.script.next("claim", "work")
    answer = ClaimReply(Outcome.NONE, world.now_ms)
    claim = world.store.claim
    lease.store._backend.store.claim = lambda request: answer  # type: ignore[attr-defined]
    lease.run()
    lease.store._backend.store.claim = claim  # type: ignore[attr-defined]
    assert lease.heard == []
    world.pass_time("5m")
    assert 5 <= len(world.script.sent("claim")) <= 12


def test_a_slot_that_is_still_to_come_is_run_when_it_has_come(world: World, lease: Lease) -> None:
    slot_ms = world.now_ms + 7_000
    lease.run(slot_ms)
    assert lease.contexts == []
    world.pass_time("7s")
    assert to_ms(lease.contexts[0].slot) == slot_ms == world.now_ms


def test_a_failed_call_is_an_error_and_is_repeated(world: World, lease: Lease) -> None:
    world.script.next("claim", "fail", "lose")
    lease.run()
    world.pass_time("1s")
    assert lease.heard.words() == ["error", "start", "success"]
    assert (lease.heard[0].operation, lease.heard[0].job) == ("claim", "x")
    assert lease.contexts[0].attempt == 1


# -- granted, and the answer lost


def test_a_grant_whose_answer_was_lost_is_found_again_after_a_newer_slot_took_its_place(
    world: World, lease: Lease
) -> None:
    """
    1. the claim of a slot is granted; its answer is lost, and so are those of the repeats
    2. the next slot comes due: the older claim is given up as late, its token handed to the backups
    3. they ask with it, and find the grant: the run is run, attempt 1, nothing is lost
    """
    lease.ends_at_once = False
    world.script.next("claim", "lose", *["lose"] * 20)
    slot_ms = world.now_ms
    lease.run()
    world.pass_time("10s")
    lease.run()
    world.until(lambda: lease.contexts, "1m")
    assert to_ms(lease.contexts[0].slot) == slot_ms
    assert lease.contexts[0].attempt == 1
    assert lease.statuses() == []


def test_what_a_backup_wins_late_is_counted_from_its_own_ask(world: World, lease: Lease) -> None:
    lease.ends_at_once = False
    lease.other.hold(lease.job)
    lease.run()
    world.until(lambda: lease.contexts, "1m")
    world.script.down = True
    won_ms = world.now_ms
    world.until(lambda: lease.contexts[0].signal.is_set(), "1m")
    assert world.now_ms - won_ms == 29_000


# -- no thread to be had


def test_a_run_that_is_won_needs_no_further_thread(world: World, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    start = lease.threads.start
    world.script.next("claim", lambda: monkeypatch.setattr(lease.threads, "start", refuse("", start)))
    lease.run()
    assert lease.heard.words() == ["start", "success"]


def test_a_run_whose_lease_nobody_could_watch_is_given_back(
    world: World, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease.alarms.keep_no_longer()
    world.settle()
    start = lease.threads.start
    monkeypatch.setattr(lease.threads, "start", refuse("anarchon-alarms", start))
    with pytest.raises(RuntimeError):
        lease.alarms.after(0, print)
    record = world.run(lambda: lease.runner.run_now(lease.job))
    monkeypatch.setattr(lease.threads, "start", start)
    assert (record.status, record.error) == ("interrupted", "RuntimeError: can't start new thread")
    assert lease.contexts == []
    assert lease.runs.over()


def test_a_manual_run_that_finds_no_thread_is_refused_and_leaves_nothing(
    world: World, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = lease.threads.start
    monkeypatch.setattr(lease.threads, "start", refuse("anarchon-run", start))
    with pytest.raises(RunRefused, match="Job 'x' was not run: can't start new thread"):
        world.run(lambda: lease.runner.run_now(lease.job))
    monkeypatch.setattr(lease.threads, "start", start)
    assert lease.runs.over() and lease.asks.idle()
    assert world.store.active("x") == []


# -- what a start looks after


def test_a_live_run_is_watched(world: World, lease: Lease) -> None:
    lease.other.hold(lease.job)
    world.pass_time("5s")
    lease.recover()
    assert (lease.asked, lease.heard) == ([True], [])
    world.until(lambda: lease.contexts, "1m")
    assert lease.contexts[0].trigger == "takeover"
    assert 30_000 < world.now_ms - to_ms(lease.contexts[0].slot) <= 33_000


def test_the_newest_run_whose_lease_is_over_is_taken_over_at_once(world: World, lease: Lease) -> None:
    """A full restart of the fleet: a daily job's run was unfinished, and no newer slot is due."""
    daily = job_of("x", lease.handler, interval="1d")
    lease.other.hold(daily)
    world.pass_time("5m")
    lease.recover(daily)
    assert (lease.contexts[0].attempt, lease.contexts[0].trigger) == (2, "takeover")
    assert lease.statuses() == [("b", 1, "lost"), ("a", 2, "success")]


def test_a_run_that_was_released_is_taken_over_at_once(world: World, lease: Lease) -> None:
    daily = job_of("x", lease.handler, interval="1d")
    lease.other.release(daily, lease.other.hold(daily))
    lease.recover(daily)
    assert lease.statuses() == [("b", 1, "interrupted"), ("a", 2, "success")]


def test_a_run_whose_lease_is_over_is_left_where_a_newer_slot_is_due(world: World, lease: Lease) -> None:
    old_ms = world.now_ms
    lease.other.hold(lease.job)
    world.pass_time("40s")
    lease.recover()
    world.pass_time("5s")
    assert (lease.contexts, world.script.sent("claim")) == ([], [])
    world.pass_time("5s")
    lease.run()  # the next grant replaces and closes it
    assert lease.statuses() == [("b", 1, "lost"), ("a", 1, "success")]
    assert [to_ms(record.slot) for record in world.store.history("x", 9)][-1] == old_ms


def test_a_manual_run_is_never_taken_over(world: World, lease: Lease) -> None:
    lease.other.hold(lease.job, trigger="manual", run_id="manual-1")
    lease.recover()
    world.pass_time("31s")
    lease.recover()
    world.pass_time("2m")
    assert (lease.contexts, world.script.sent("claim")) == ([], [])


def test_the_newest_slot_is_caught_up_on_where_it_is_younger_than_catch_up(world: World, lease: Lease) -> None:
    job = job_of("x", lease.handler, catch_up="9s1ms")
    slot_ms = world.now_ms
    world.pass_time("9s")
    lease.recover(job)
    assert [to_ms(context.slot) for context in lease.contexts] == [slot_ms]
    assert lease.contexts[0].trigger == "catch-up"
    assert lease.heard.words() == ["start", "success"]


def test_a_slot_that_is_as_old_as_catch_up_is_not_run(world: World, lease: Lease) -> None:
    world.pass_time("9s")
    lease.recover(job_of("x", lease.handler, catch_up="9s"))
    world.pass_time("1s")
    assert (lease.contexts, lease.heard) == ([], [])


def test_without_catch_up_nothing_is_caught_up_on(world: World, lease: Lease) -> None:
    world.pass_time("1s")
    lease.recover()
    world.pass_time("5s")
    assert lease.contexts == []


def test_catch_up_waits_for_a_random_jitter(world: World, lease: Lease) -> None:
    world.chance.pick = lambda low_ms, high_ms: high_ms
    world.pass_time("1s")
    lease.recover(job_of("x", lease.handler, catch_up="1h", jitter="2s"))
    world.pass_time("1s999ms")
    assert lease.contexts == []
    world.pass_time("1ms")
    assert len(lease.contexts) == 1


def test_a_slot_that_was_run_already_is_not_caught_up_on(world: World, lease: Lease) -> None:
    job = job_of("x", lease.handler, catch_up="1h")
    lease.other.finish(job, lease.other.hold(job))
    world.pass_time("1s")
    lease.recover(job)
    assert lease.heard.words() == ["skip taken"]


def test_the_start_is_reckoned_on_the_stores_clock(world: World, lease: Lease) -> None:
    """The host's clock is an hour behind; it is the store's newest slot that is caught up on, not the host's."""
    lease.store.clock._clock = world.skewed_clock("-1h")
    slot_ms = world.now_ms
    world.pass_time("4s")
    lease.recover(job_of("x", lease.handler, catch_up="9s"))
    assert [to_ms(context.slot) for context in lease.contexts] == [slot_ms]


def test_slots_after_the_start_are_the_timers_even_where_the_store_came_late(world: World, lease: Lease) -> None:
    """
    1. the job is started at 9 s; the store is away
    2. it comes back at 12 s: the slot of 10 s was the timer's, the one of 0 s is caught up on
    """
    slot_ms = world.now_ms
    world.pass_time("12s")
    lease.recover(job_of("x", lease.handler, catch_up="1h"), ago_ms=3_000)
    assert [to_ms(context.slot) for context in lease.contexts] == [slot_ms]


def test_a_store_that_is_down_at_the_start_is_asked_again_until_it_answers(world: World, lease: Lease) -> None:
    daily = job_of("x", lease.handler, interval="1d")
    lease.other.hold(daily)
    world.pass_time("5m")
    world.script.down = True
    lease.recover(daily)
    assert lease.asked == [False]
    world.pass_time("2m")
    assert set(lease.asked) == {False} and len(lease.asked) > 10
    assert lease.heard.words() == ["error"]
    world.script.down = False
    world.pass_time("5s")
    assert lease.asked[-1] is True
    assert lease.statuses() == [("b", 1, "lost"), ("a", 2, "success")]


def test_a_schedule_that_raises_does_not_hold_back_its_timer(world: World, lease: Lease) -> None:
    lease.recover(job_of("x", lease.handler, catch_up="1h"), ago_ms=10**18)  # the start was before the year 1
    assert lease.asked == [True]

    class Broken:
        interval_ms = None

        def newest_at(self, instant_ms: int) -> int:
            raise OverflowError("no slot within a hundred years")

    lease.recover(Job("y", Broken(), lease.handler, lease.handler, lease.job.options))  # type: ignore[arg-type]
    assert lease.asked == [True, True]
    assert [(event.operation, event.job) for event in lease.heard.of("error")][-1] == ("recover", "y")


# -- a lost lease


def lose(world: World, lease: Lease) -> Any:
    """A run goes on; its lease was lost in an outage, and it is told in time."""
    lease.ends_at_once = False
    lease.run()
    world.script.down = True
    world.until(lambda: lease.contexts[0].signal.is_set(), "1m")
    assert lease.contexts[0].reason == "lease-lost"
    return lease.contexts[0]


def test_a_lost_lease_that_nobody_took_is_released_counted_and_watched_again_here(world: World, lease: Lease) -> None:
    lose(world, lease)
    world.script.down = False
    world.until(lambda: len(lease.contexts) == 2, "1m")
    [(_, _, _, _, counts)] = world.script.sent("release")[-1:]
    assert counts is True
    assert [e for e in lease.heard.words() if e != "error"] == ["start", "interrupted lease-lost", "start"]
    assert (lease.contexts[1].attempt, lease.contexts[1].trigger) == (2, "takeover")
    [record] = world.store.history("x", 9)
    assert (record.status, record.lease_lost) == ("interrupted", False)


def test_a_lost_lease_counts_until_the_attempts_are_used_up(world: World, lease: Lease) -> None:
    lease.job = job_of("x", lease.handler, interval="1d", max_attempts=2)
    lose(world, lease)
    world.script.down = False
    world.until(lambda: len(lease.contexts) == 2, "1m")
    world.script.down = True
    world.until(lambda: lease.contexts[1].signal.is_set(), "1m")
    world.script.down = False
    world.pass_time("5m")
    assert len(lease.contexts) == 2
    assert lease.statuses() == [("a", 1, "interrupted"), ("a", 2, "interrupted")]


def test_a_handler_that_returns_after_its_lease_was_lost_is_finished_where_nobody_took_it(
    world: World, lease: Lease
) -> None:
    lease.job = job_of("x", lambda ctx: (lease.contexts.append(ctx), ctx.signal.wait()), lease="30s")
    lose(world, lease)
    world.script.down = False
    world.pass_time("10s")
    [record] = world.store.history("x", 9)
    assert (record.status, record.lease_lost) == ("success", False)
    assert lease.heard.words("error") == ["start", "success"]
    assert world.script.sent("save_result") == []


def test_what_really_happened_replaces_the_lost_record_where_somebody_took_it(world: World, lease: Lease) -> None:
    """
    1. the holder is cut off; its lease is lost; it is told at 29 s
    2. its handler takes a while to return, though
    3. another instance takes the run over: attempt 1 is recorded lost
    4. the handler returns: finish is refused, so its result replaces the lost record, marked lease_lost
    """
    done = world.clock.event()
    lease.job = job_of("x", lambda ctx: (lease.contexts.append(ctx), world.clock.wait(done, None)))
    context = lose(world, lease)  # 1 and 2
    world.pass_time("2s")
    lease.other.take_over(lease.job, context.run_id, to_ms(context.slot))  # 3
    assert lease.statuses() == [("a", 1, "lost")]
    done.set()  # 4
    world.settle()
    world.script.down = False
    world.pass_time("10s")
    assert lease.statuses() == [("a", 1, "success")]
    [record] = world.store.history("x", 9)
    assert (record.lease_lost, record.fence) == (True, context.fence)
    assert lease.heard[-1].type == "success" and lease.heard[-1].record == record
    assert [run.instance_id for run in world.store.active("x")] == ["b"]


def test_a_run_that_is_interrupted_after_it_was_taken_over_changes_nothing_but_its_record(
    world: World, lease: Lease
) -> None:
    context = lose(world, lease)
    world.pass_time("2s")
    held = lease.other.take_over(lease.job, context.run_id, to_ms(context.slot))
    world.script.down = False
    world.pass_time("10s")
    [record] = world.store.history("x", 9)
    assert (record.status, record.lease_lost, record.attempt) == ("interrupted", True, 1)
    lease.other.renew(held)


def test_a_holder_that_the_store_says_is_lost_is_told_at_its_next_heartbeat(world: World, lease: Lease) -> None:
    lease.ends_at_once = False
    lease.run()
    world.store.forget("x")  # the store has lost its data
    world.pass_time("6s")
    assert lease.contexts[0].reason == "lease-lost"
    assert lease.statuses() == [("a", 1, "interrupted")]
    assert lease.heard[-1].record.lease_lost is True  # type: ignore[union-attr]


def test_a_run_whose_lease_was_lost_before_it_began_never_begins(world: World, lease: Lease) -> None:
    """
    1. a claim is granted; its answer takes 31 s, in which another instance takes the run over
    2. the heartbeat is refused before the handler is called: it is not called
    """
    hang = Hang(world.clock, 31_000, then="work")
    slot_ms = world.now_ms
    claim = world.store.claim

    def slow(request: Any) -> ClaimReply:
        reply = claim(request)
        if request.instance_id == "a":
            hang()
        return reply

    world.store.claim = slow  # type: ignore[method-assign]
    lease.run()
    world.pass_time("30s500ms")
    lease.other.take_over(lease.job, str(slot_ms), slot_ms)
    world.pass_time("10s")
    assert lease.contexts == []
    assert lease.heard.words() == ["interrupted lease-lost"]
    assert lease.statuses() == [("a", 1, "interrupted")]


def test_a_run_whose_lease_ran_out_unanswered_before_it_began_never_begins(world: World, lease: Lease) -> None:
    """
    1. a claim is granted; its answer takes 31 s
    2. the renewal before the beginning fails: nobody knows whether the lease is still held
    3. the handler is not called; as nobody took the run, it is released and watched again
    """
    claim = world.store.claim
    hangs = [Hang(world.clock, 31_000)]

    def slow(request: Any) -> ClaimReply:
        reply = claim(request)
        if hangs:
            hangs.pop()()
        return reply

    world.store.claim = slow  # type: ignore[method-assign]
    world.script.next("heartbeat", "fail")
    lease.run()
    world.pass_time("31s")
    assert (lease.contexts, lease.statuses()) == ([], [("a", 1, "interrupted")])
    assert lease.heard.words("error") == ["interrupted lease-lost"]
    world.until(lambda: lease.contexts, "1m")
    assert lease.contexts[0].attempt == 2


# -- the end of a run


def test_the_heartbeat_goes_on_until_the_end_is_stored(world: World, lease: Lease) -> None:
    """
    1. the handler has ended; finish does not get through for a minute, heartbeats do
    2. no backup may repeat work that is done: the lease stays live until the end is stored
    3. nobody hears of a result that was not kept
    """
    world.script.next("finish", *["fail"] * 1_000)
    lease.run()
    for _ in range(12):
        world.pass_time("5s")
        assert world.store.active("x")[0].lease_left > 20
    assert lease.heard.words("error") == ["start"]
    world.script._acts["finish"].clear()
    world.pass_time("5s")
    assert lease.heard.words("error") == ["start", "success"]
    assert lease.statuses() == [("a", 1, "success")]
    beats = len(world.script.sent("heartbeat"))
    world.pass_time("1m")
    assert len(world.script.sent("heartbeat")) == beats


def test_a_finish_whose_answer_was_lost_is_no_loss(world: World, lease: Lease) -> None:
    world.script.next("finish", "lose", "lose")
    lease.run()
    world.pass_time("1s")
    assert lease.statuses() == [("a", 1, "success")]
    assert world.script.sent("save_result") == []
    assert lease.heard[-1].record.lease_lost is False  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (lambda: None, "success"),
        (lambda: 1 / 0, "failure"),
        (lambda ctx: (ctx._cancel("stop"), ctx.raise_if_cancelled()), "interrupted stop"),
    ],
)
def test_the_event_comes_after_the_result_is_stored(
    world: World, lease: Lease, handler: Callable[..., Any], words: str
) -> None:
    stored: list[int] = []
    lease.parts.teller._emit = lambda event: (lease.heard.append(event), stored.append(len(lease.statuses())))
    lease.run(job=job_of("x", handler))
    assert lease.heard.words() == ["start", words]
    assert stored == [0, 1]


def test_a_straggler_blocks_claims_takeovers_and_manual_runs_of_its_job_here_alone(world: World, lease: Lease) -> None:
    gate = world.clock.event()
    stuck = job_of("x", lambda: world.clock.wait(gate, None), timeout="2s")
    lease.run(job=stuck)
    world.pass_time("2s")
    assert lease.heard.words() == ["start", "failure"]
    world.pass_time("8s")
    lease.run(job=stuck)
    assert lease.heard.words()[2:] == ["skip overlap"]
    with pytest.raises(RunRefused, match="a handler is still at work here after its timeout"):
        lease.runner.run_now(stuck)
    lease.other.hold(stuck)  # other instances do start it
    lease.run(job=job_of("y"))
    assert lease.heard.words()[3:] == ["start", "success"]
    gate.set()
    world.pass_time("10s")
    lease.run(job=stuck)
    assert lease.heard[-1].holder == "b"  # what is in the way now is the other instance's run


def test_a_grant_that_comes_after_a_handler_was_left_behind_is_given_back(world: World, lease: Lease) -> None:
    """
    1. a run goes on; the next slot comes due, and its claim is on its way, and slow
    2. the run is over its timeout: its end is stored, and its handler is left behind
    3. the claim comes to the store, finds nothing in its way, and is granted: nothing begins here
    4. the handler is gone: the run is taken over, by whoever comes first
    """
    gate, begun = world.clock.event(), []

    def handler(ctx: RunContext) -> None:
        begun.append(ctx.attempt)
        world.clock.wait(gate, None)

    stuck = job_of("x", handler, timeout="2s")
    lease.run(job=stuck)
    hang = Hang(world.clock)
    world.script.next("claim", hang)
    lease.run(world.now_ms + 1_000, job=stuck)
    world.pass_time("2s")
    assert lease.heard.words() == ["start", "failure"]
    hang.let_go()
    world.settle()
    assert (begun, lease.heard.words()[2:]) == ([1], ["skip overlap"])
    assert lease.heard[-1].holder == "a"
    assert lease.statuses() == [("a", 1, "failed"), ("a", 1, "interrupted")]
    assert lease.runs.over() is False  # the handler that was left behind
    gate.set()
    world.until(lambda: len(begun) == 2, "1m")
    assert begun == [1, 2]


def test_a_manual_grant_that_comes_after_a_handler_was_left_behind_is_ended(world: World, lease: Lease) -> None:
    """As above, by hand: the caller is refused, and nothing is in the way of the job afterwards."""
    gate, begun = world.clock.event(), []

    def handler(ctx: RunContext) -> None:
        begun.append(ctx.trigger)
        world.clock.wait(gate, None)

    stuck = job_of("x", handler, timeout="2s")
    lease.run(job=stuck)
    hang = Hang(world.clock)
    world.script.next("claim", hang)
    manual = world.spawn(lambda: lease.runner.run_now(stuck))
    world.pass_time("2s")
    hang.let_go()
    world.settle()
    with pytest.raises(RunRefused, match="a handler is still at work here after its timeout"):
        manual.result()
    assert begun == ["scheduled"]
    assert lease.statuses() == [("a", 1, "failed"), ("a", 1, "interrupted")]
    assert world.store.active("x") == []
    gate.set()


def test_a_caller_whose_grant_is_given_back_does_not_wait_for_a_store_that_has_gone_away(
    world: World, lease: Lease
) -> None:
    gate = world.clock.event()
    stuck = job_of("x", lambda: world.clock.wait(gate, None), timeout="2s")
    lease.run(job=stuck)
    hang = Hang(world.clock)
    world.script.next("claim", hang)
    manual = world.spawn(lambda: lease.runner.run_now(stuck, wait_ms=0))
    world.pass_time("2s")
    world.script.next("finish", *["fail"] * 3)
    hang.let_go()
    world.settle()
    assert manual.done
    with pytest.raises(RunRefused, match="a handler is still at work here"):
        manual.result()
    world.pass_time("10s")
    assert world.store.active("x") == []
    gate.set()


# -- run_now


def test_a_manual_run_is_recorded_like_any_other(world: World, lease: Lease) -> None:
    record = world.run(lambda: lease.runner.run_now(lease.job))
    assert (record.trigger, record.status, record.attempt) == ("manual", "success", 1)
    assert record.run_id.startswith("manual-") and to_ms(record.slot) == world.now_ms
    assert world.store.history("x", 9) == [record]
    assert lease.heard.words() == ["start", "success"]


def test_two_manual_runs_at_once_have_ids_of_their_own(world: World, lease: Lease) -> None:
    job = job_of("x", lease.handler, overlap="allow")
    first, second = (world.run(lambda: lease.runner.run_now(job)) for _ in range(2))
    assert first.run_id != second.run_id


@pytest.mark.parametrize("ends_at_once", [True, False])
def test_what_is_asked_twice_with_one_token_is_run_once_even_where_runs_may_overlap(
    world: World, lease: Lease, ends_at_once: bool
) -> None:
    lease.ends_at_once = ends_at_once
    job = job_of("x", lease.handler, overlap="allow")
    first = world.spawn(lambda: lease.runner.run_now(job, once="t1"))
    with pytest.raises(RunRefused, match="Job 'x' was not run again") as refused:
        lease.runner.run_now(job, once="t1")
    assert refused.value.holder == (None if ends_at_once else "a")
    assert [context.run_id for context in lease.contexts] == ["manual-t1"]
    lease.contexts[0]._cancel("stop")
    world.settle()
    assert first.result().run_id == "manual-t1"


def test_a_manual_run_that_meets_another_run_is_refused_and_names_its_holder(world: World, lease: Lease) -> None:
    lease.other.hold(lease.job)
    with pytest.raises(RunRefused, match="Job 'x' is already running on 'b'") as refused:
        lease.runner.run_now(lease.job)
    assert (refused.value.job, refused.value.holder) == ("x", "b")


def test_a_manual_run_that_is_interrupted_is_finished_never_released(world: World, lease: Lease) -> None:
    lease.ends_at_once = False
    task = world.spawn(lambda: lease.runner.run_now(lease.job))
    lease.contexts[0]._cancel("stop")
    world.settle()
    assert task.result().status == "interrupted"
    assert world.script.sent("release") == []
    assert world.store.active("x") == []


def test_a_manual_claim_whose_answer_was_lost_is_found_again(world: World, lease: Lease) -> None:
    world.script.next("claim", "lose", "fail")
    record = world.run(lambda: lease.runner.run_now(lease.job))
    assert record.attempt == 1
    assert len({request.token for (request,) in world.script.sent("claim")}) == 1


def test_a_manual_run_is_told_that_the_store_is_away_after_three_tries(world: World, lease: Lease) -> None:
    world.script.down = True
    with pytest.raises(BackendError, match="the store is down"):
        world.run(lambda: lease.runner.run_now(lease.job))
    assert len(world.script.sent("claim")) == 3
    # It may have been granted all the same, so it is withdrawn for as long as its lease could be in the way.
    world.pass_time("40s")
    assert lease.asks.idle()
    assert {call[0] for call in world.script.calls} == {"claim", "finish", "time"}


def test_a_manual_run_after_the_asks_were_closed_is_refused(world: World, lease: Lease) -> None:
    lease.asks.close()
    with pytest.raises(RunRefused, match="this scheduler is stopping"):
        lease.runner.run_now(lease.job)
    assert world.script.calls == []


def test_a_manual_run_that_is_granted_after_a_stop_began_is_given_back(world: World, lease: Lease) -> None:
    hang = Hang(world.clock, then="work")
    world.script.next("claim", hang)
    task = world.spawn(lambda: lease.runner.run_now(lease.job))
    lease.runs.stop()
    hang.let_go()
    world.settle()
    with pytest.raises(RunRefused, match="this scheduler is stopping"):
        task.result()
    assert (lease.contexts, lease.heard) == ([], [])
    assert world.store.active("x") == []
    assert lease.statuses() == [("a", 1, "interrupted")]


def refuse(prefix: str, start: Any) -> Any:
    def start_others(name: str, work: Any) -> None:
        if name.startswith(prefix):
            raise RuntimeError("can't start new thread")
        start(name, work)

    return start_others


def test_the_lease_of_a_manual_run_is_counted_from_before_its_first_ask(world: World, lease: Lease) -> None:
    lease.ends_at_once = False
    world.script.next("claim", Hang(world.clock, 4_000, then="lose"))
    asked_ms = world.now_ms
    task = world.spawn(lambda: lease.runner.run_now(lease.job))
    world.until(lambda: lease.contexts)
    world.script.next("heartbeat", *["fail"] * 1_000)
    world.until(lambda: lease.contexts[0].signal.is_set())
    assert world.now_ms - asked_ms == 29_000
    world.until(lambda: task.done)


def test_a_backup_never_starts_a_run(world: World, lease: Lease) -> None:
    """
    1. an older run is in the way of a slot, so that slot is watched, should somebody start it
    2. the older run ends, and nobody starts the slot
    3. its watch must not
    """
    older = lease.other.hold(lease.job)
    world.pass_time("10s")
    lease.run()
    lease.other.finish(lease.job, older)
    world.pass_time("5m")
    assert len(world.script.sent("claim")) > 3
    assert lease.contexts == []


def test_a_manual_claim_that_is_answered_otherwise_is_refused_with_that_answer(
    world: World, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.store, "claim", lambda request: ClaimReply(Outcome.LATE, world.now_ms))
    with pytest.raises(RunRefused, match="The store answered 'late' to a manual run of 'x'"):
        lease.runner.run_now(lease.job)
