"""One instance's side, watched more closely: the rules that want times to be known to a few milliseconds.

A storm that is drawn at random has clocks that drift and networks that are slow, and much befalls a host at once: there
``conduct.py`` allows for a second, and says nothing of a host that had trouble of late. An aimed storm knows its own
trouble, so that these can be judged in it. Each is one sentence of docs/protocol.rst or docs/life.rst, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from conduct import Conduct
from holds import Hold
from kernel import EPOCH_MS

from anarchon.durations import to_ms
from anarchon.errors import RunInterrupted
from anarchon.events import Event
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, Mode, Outcome, RunRecord, Verdict

if TYPE_CHECKING:
    from fleet_of_hosts import Call, Host

__all__ = ["CloseConduct"]

#: How long a host's threads may take to come to a thing, and how coarse its clocks are.
_SOON_MS = 50

#: A step of the host's own clock that it must notice; a smaller one shows only in the next answer.
_STEP_MS = 1_000

_STALE_MS = 10 * 60_000
_MISSED_ONE_BY_ONE = 100

_Key = tuple[str, str]


class CloseConduct(Conduct):
    """As ``Conduct``, and more."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._started_ms = host.made_ms
        self._offset_ms = host.clock.offset_ms
        #: From when it knows the time to within half of the longest round trip, and when it heard it last.
        self._right_from_ms: int | None = None
        self._heard_ms = 0
        self._doubt_ms = 0
        self._asked_time_ms = -1
        self._first_asked: set[tuple[str, int]] = set()
        self._late_skips: Counter[tuple[str, int]] = Counter()
        self._recovered_ms: dict[str, int] = {}
        #: Runs that somebody has begun, as far as it has heard; and the newest that it waits for, which nobody has.
        self._begun: set[_Key] = set()
        self._unstarted_ms: dict[str, int] = {}
        self._unsure: set[_Key] = set()
        #: Which token its first claim for a run had; and runs that were granted to it unseen: token, from, by when.
        self._token_of: dict[_Key, str] = {}
        self._unseen: dict[_Key, tuple[str, int, int]] = {}
        self._given_back: dict[_Key, int] = {}
        self._attempt_of: dict[str, int | None] = {}
        self._outages: dict[tuple[str, str], set[str]] = {}
        self._untold: dict[tuple[str, str], tuple[int, int]] = {}

    # -- told by the line

    def sent(self, verb: str, values: tuple[Any, ...]) -> None:
        if verb == "time" and not self._host.where.killed:
            self._asked_time_ms = self._now_ms
        super().sent(verb, values)

    def answered(self, verb: str, values: tuple[Any, ...], sent_ms: int, answer: Any) -> None:
        super().answered(verb, values, sent_ms, answer)
        now_ms = self._now_ms
        if verb in ("claim", "time"):
            self._doubt_ms = max(self._doubt_ms, (now_ms - sent_ms) // 2)
            self._heard_ms = now_ms
            self._right_from_ms = now_ms if self._right_from_ms is None else self._right_from_ms
        job = values[0].job if verb == "claim" else values[0]
        for kind in [kind for kind in self._outages if kind[0] in (verb, _ALSO_OVER.get(verb))]:
            self._outages[kind].discard(job)
            if not self._outages[kind]:
                del self._outages[kind]
        self._untold = {kind: untold for kind, untold in self._untold.items() if kind[0] != verb}
        if verb == "claim" and sent_ms <= self._started_ms != self._host.made_ms:
            # Asked before its scheduler was started again: the watch that asked is over.
            self._checks.pop((values[0].job, values[0].run_id), None)
        if verb == "claim":
            self._learns(values[0], answer, sent_ms)
        elif verb == "active":
            self._recovered_ms[job] = now_ms
            self._begun |= {(job, run.run_id) for run in answer}
        elif verb == "release" and answer is Verdict.OK and values[4] and self._stopping_from_ms is None:
            self._given_back[values[0], values[1]] = now_ms

    def failed(self, verb: str, values: tuple[Any, ...], sent_ms: int) -> None:
        super().failed(verb, values, sent_ms)
        job = values[0].job if verb == "claim" else values[0]
        if verb == "claim" and values[0].mode is Mode.START:
            self._unsure.add((values[0].job, values[0].run_id))
        kind = (verb, self._host.line.failed_of)  # type: ignore[attr-defined]
        if kind in self._outages:
            self._outages[kind].add(job)
            return
        # One that was sent before another was answered need not be told.
        since_ms, times = self._untold.get(kind, (self._now_ms, 0))
        self._untold[kind] = since_ms, times + (sent_ms >= since_ms)
        if self._untold[kind][1] == 2:
            self._complain(f"nobody is told that {verb} fails: {kind[1]}")

    # -- told by handlers, listeners and those who meddle

    def hears(self, event: Event) -> None:
        now_ms = self._now_ms
        if event.type == "error" and event.operation is not None:
            error = event.exception
            kind = (event.operation, type(error.__cause__ or error).__name__ if error else "")
            if kind in self._outages:
                self._complain(f"the outage is told twice: {kind}")
            self._outages[kind] = {str(event.job)}
            self._untold.pop(kind, None)
            return
        if event.type == "start":
            hold = next((hold for hold in reversed(self._holds.values()) if _is_of(hold, event)), None)
            if self._stopping_from_ms is not None:
                self._complain(f"the start of {event.job} {event.run_id} is told after a stop began")
            if hold is not None and hold.lost_ms is not None:
                self._complain(f"the start of {hold} is told after its lease was lost")
        if event.type == "skip" and event.reason == "late" and event.slot is not None:
            key = (str(event.job), to_ms(event.slot))
            self._late_skips[key[0], now_ms] += 1
            if self._late_skips[key[0], now_ms] == _MISSED_ONE_BY_ONE + 2:
                self._complain(f"more than {_MISSED_ONE_BY_ONE} slots of {key[0]} are told one by one")
            knows = self._right_from_ms is not None and now_ms > self._right_from_ms + 20
            if knows and key[1] > EPOCH_MS + now_ms + _SOON_MS + self._doubt_ms and not self._in_trouble(3_000):
                self._complain(f"{key} is told to be late, and is still to come")
            if event.trigger == "scheduled" and key not in self._first_asked and self._is_well(now_ms):
                self._complain(f"{key} is passed over, and nothing was in the way")
        super().hears(event)

    def clock_stepped(self) -> None:
        super().clock_stepped()
        step_ms, self._offset_ms = self._host.clock.offset_ms - self._offset_ms, self._host.clock.offset_ms
        if abs(step_ms) <= _STEP_MS:
            self._right_from_ms = None

    def starts_again(self) -> None:
        """Its scheduler is started again, in the same process."""
        self._started_ms, self._stopping_from_ms = self._now_ms, None
        self._checks.clear()
        self._given_up.clear()
        self._unanswered.clear()
        self._pending.clear()
        self._given_back.clear()
        self._unseen.clear()

    # -- what is asked

    def _claims(self, request: ClaimRequest) -> Iterator[str]:
        first_ask = (request.token, request.mode, request.window_ms) not in self._asked_from
        late_ms = EPOCH_MS + self._now_ms - request.slot_ms
        key = (request.job, request.run_id)
        yield from super()._claims(request)
        if self._unseen.get(key, ("",))[0] == request.token:
            del self._unseen[key]
        if request.manual:
            if first_ask and abs(late_ms) > _SOON_MS + self._doubt_ms and not self._in_trouble(3_000):
                yield f"the slot of the manual run {request.run_id} is {late_ms} ms ago when it is first asked for"
        elif request.mode is Mode.START:
            self._token_of[key] = request.token
            if first_ask:
                yield from self._first_asks(request, late_ms)
        else:
            self._given_back.pop(key, None)
            newer_ms = self._unstarted_ms.get(request.job, 0)
            if newer_ms > request.slot_ms and not {key} & (self._begun | self._unsure):
                yield f"{key} is watched beside {newer_ms}, and nobody has begun it"

    def _first_asks(self, request: ClaimRequest, late_ms: int) -> Iterator[str]:
        job, now_ms = self._jobs[request.job], self._now_ms
        what = f"{request.trigger} {request.job} {request.run_id}"
        noise_ms = _SOON_MS + self._doubt_ms
        knows = self._right_from_ms is not None and now_ms > self._right_from_ms + 20
        self._first_asked.add((request.job, request.slot_ms))
        if request.trigger == "catch-up":
            self._drawn[f"{request.job} to catch up"].append(now_ms - self._recovered_ms.get(request.job, 0))
            if request.slot_ms - EPOCH_MS > self._started_ms + noise_ms:
                yield f"{what} came after the start"
            if late_ms > request.window_ms + job.options.jitter_ms + noise_ms:
                yield f"{what} is {late_ms} ms old, and caught up on"
        elif knows and not self._in_trouble(3_000):
            if job.options.jitter_ms >= 100 and self._is_well(now_ms):
                self._drawn[f"{request.job} after its slot"].append(late_ms)
            if late_ms < -noise_ms:
                yield f"{what} is asked for {-late_ms} ms before its slot"
            if now_ms - self._heard_ms > _STALE_MS + 1_000 and self._asked_time_ms < self._heard_ms:
                yield f"{what} is asked for, and the time was heard {now_ms - self._heard_ms} ms ago"
        due_ms = job.schedule.newest_at(EPOCH_MS + now_ms - job.options.jitter_ms - noise_ms)
        slot_ms = request.slot_ms - EPOCH_MS
        if request.trigger == "scheduled" and knows and due_ms > request.slot_ms:
            until_ms = slot_ms + job.options.jitter_ms + noise_ms
            # A thread that stood still between its last look and this call could not know.
            if not any(slot_ms - _SOON_MS <= begin_ms <= until_ms for begin_ms, _ in self._host.paused_ms):
                yield f"{what} is asked for, and {due_ms} is due"

    def _learns(self, request: ClaimRequest, reply: ClaimReply, sent_ms: int) -> None:
        now_ms, key = self._now_ms, (request.job, request.run_id)
        if reply.outcome in (Outcome.RUNNING, Outcome.WON):
            self._begun.add(key)
        holder = reply.holder
        if reply.outcome is Outcome.OVERLAP and holder is not None:
            self._begun.add((request.job, holder.run_id))
            if request.mode is Mode.START and not request.manual:
                newest_ms = self._unstarted_ms.get(request.job, 0)
                self._unstarted_ms[request.job] = max(newest_ms, request.slot_ms)
        if reply.outcome is Outcome.WON:
            self._attempt_of[request.token] = reply.attempt
            unseen = self._unseen.pop(key, None)
            if unseen is not None and unseen[0] != request.token and not self._stood_still(unseen[1], now_ms):
                self._complain(f"{key} was granted to this instance, which did not ask with that token")
        elif holder is not None and holder.instance_id == self._host.name:
            held = (request.job, holder.run_id)
            holds = [hold for hold in self._holds.values() if (hold.request.job, hold.request.run_id) == held]
            # The store may have answered before the end of a run that was heard of meanwhile.
            alive = any(hold.over_ms is None or hold.over_ms >= sent_ms for hold in holds)
            in_time = EPOCH_MS + now_ms - holder.slot_ms <= request.window_ms
            if not alive and in_time and held in self._token_of:
                by_ms = now_ms + holder.lease_left_ms
                self._unseen.setdefault(held, (self._token_of[held], now_ms, by_ms))

    def _ends(self, hold: Hold, verb: str, record: RunRecord, counts: bool | None = None) -> Iterator[str]:
        yield from super()._ends(hold, verb, record, counts)
        expected = None if hold.call is None else self._status(hold, hold.call)
        if expected is not None and record.status != expected:
            yield f"{hold} ends as {record.status}, and was {expected}"

    def _status(self, hold: Hold, call: Call) -> str | None:
        """How an attempt whose end is sent now has ended; None: two things came at one instant."""
        timeout_ms, told_ms, ended_ms = hold.job.options.timeout_ms, call.told_ms, call.ended_ms
        if ended_ms is None:
            return "failed"  # nothing but its timeout ends a run before its handler ends
        if timeout_ms is not None and ended_ms >= call.started_ms + timeout_ms - _SOON_MS:
            return None
        if call.raised is None:
            return "success"
        if isinstance(call.raised, RunInterrupted):
            return "interrupted"
        if told_ms == ended_ms:
            return None
        return "interrupted" if told_ms is not None and told_ms < ended_ms else "failed"

    # -- afterwards

    def judge(self) -> None:
        super().judge()
        fleet = self._host.fleet
        gone_ms = fleet.gone_ms.get(self._host.name, fleet.kernel.now_ms)
        for (job, run_id), heard_ms in self._given_back.items():
            by_ms = heard_ms + 2 * self._jobs[job].options.heartbeat_ms + _SOON_MS
            if by_ms < gone_ms and not self._paused(heard_ms, by_ms):
                self._complain(f"{job} {run_id} was given back, and is not watched")
        for (job, run_id), (_, heard_ms, by_ms) in self._unseen.items():
            if by_ms < gone_ms and not self._stood_still(heard_ms, by_ms):
                self._complain(f"{job} {run_id} was granted to this instance, which did not ask with that token")
        for hold in self._holds.values():
            self._complain(*_told_too_early(hold))
        for calls in self._working.values():
            for call in calls:
                self._complain(*self._not_told_of_its_timeout(call))

    def begins(self, call: Call) -> None:
        super().begins(call)
        timeout_ms = self._jobs[call.ctx.job].options.timeout_ms
        if timeout_ms is not None:
            fleet, by_ms = self._host.fleet, timeout_ms + _SOON_MS

            def look() -> None:
                fleet.kernel.sleep(by_ms)
                self._complain(*self._not_told_of_its_timeout(call))

            fleet.kernel.spawn(fleet.kernel.controller.where, look)

    def _not_told_of_its_timeout(self, call: Call) -> Iterator[str]:
        timeout_ms = self._jobs[call.ctx.job].options.timeout_ms
        if timeout_ms is None or call.ended_ms is not None or call.told_ms is not None or self._host.where.killed:
            return
        by_ms = call.started_ms + timeout_ms + _SOON_MS
        if by_ms <= self._now_ms and not self._paused(call.started_ms, self._now_ms):
            yield f"the handler of {call.ctx.job} {call.ctx.run_id} is past its timeout, and not told"

    def _held_back(self, gone_ms: int) -> Iterator[str]:
        """Where a slot was due so soon."""
        made_ms = EPOCH_MS + self._host.made_ms
        first_ms = [job.schedule.next_after(made_ms) + job.options.jitter_ms for job in self._jobs.values()]
        if min(first_ms) <= made_ms + 2_000:
            yield from super()._held_back(gone_ms)

    def leaves(self, run: ActiveRun) -> bool:
        """Whether it knew of a run that somebody had begun, nothing was in its way for long, and it did not take it."""
        now_ms = self._now_ms
        newest_ms = self._jobs[run.job].schedule.newest_at(EPOCH_MS + now_ms)
        # A manual run, and one that is older than a slot that has come due, may rightly be nobody's.
        counts = run.run_id.isdigit() and int(run.run_id) >= newest_ms and (run.job, run.run_id) in self._begun
        return (
            counts and (run.job, run.run_id) in self._begun and self._is_well(now_ms) and not self._in_trouble(10_000)
        )

    def _stood_still(self, first_ms: int, last_ms: int) -> bool:
        """Whether it did so for longer than a moment."""
        return any(b <= last_ms and e >= first_ms and e - b > 1_000 for b, e in self._host.paused_ms)

    def _holds_of(self, record: RunRecord) -> Iterator[Hold]:
        """One that starts again may hold two attempts of one run."""
        for hold in super()._holds_of(record):
            if self._attempt_of.get(hold.request.token) == record.attempt:
                yield hold

    def _in_trouble(self, ms: int) -> bool:
        """Whether anything was in its way of late."""
        since_ms = self._now_ms - ms
        troubles = [*self._host.unable, *self._host.fleet.server_away]
        return any(begin <= self._now_ms and (end is None or end >= since_ms) for begin, end in troubles)


#: What is known to work again when another call is answered.
_ALSO_OVER = {"finish": "heartbeat", "release": "heartbeat", "save_result": "heartbeat", "claim": "time"}


def _is_of(hold: Hold, event: Event) -> bool:
    return (hold.request.job, hold.request.run_id) == (event.job, event.run_id)


def _told_too_early(hold: Hold) -> Iterator[str]:
    """Whether its handler was told that its lease is over, when a renewal had moved the end before."""
    told_ms = None if hold.call is None else hold.call.told_ms
    if hold.call is None or told_ms is None or hold.call.ctx.reason != "lease-lost" or hold.lost_ms is not None:
        return
    good_until_ms = max((hold.deadline_ms(n) for n, (heard_ms, _) in enumerate(hold.trusted) if heard_ms < told_ms))
    if told_ms < good_until_ms - _SOON_MS:
        yield f"the handler of {hold} was told at {told_ms} ms that its lease is over, good until {good_until_ms}"
