"""One instance's side, watched on its way to the store: what it asks, when, with which token, and what it does then.

The oracle sees what handlers did, the model what the store answered; here are the rules that neither shows. Each is one
sentence of docs/protocol.rst or docs/life.rst, and each complaint says which was broken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holds import Hold
from kernel import EPOCH_MS

from anarchon.durations import to_ms
from anarchon.events import Event
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, DoneReason, Mode, Outcome, RunRecord, Verdict

if TYPE_CHECKING:
    from fleet_of_hosts import Call, Host

__all__ = ["Conduct"]

#: How far a host's idea of the store's time may be off, and how long its threads may take to come to it.
_NOISE_MS = 1_000

#: The longest pause before a call that failed is made again, and what may come on top.
_PAUSE_MS = 5_000 + _NOISE_MS

_RESULTS = ("success", "failure", "interrupted")


class Conduct:
    """Watches one host. Its line, its handlers and its listeners tell it what happens."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._jobs = host.scheduler._jobs
        self.in_flight: Counter[str] = Counter()
        self._holds: dict[str, Hold] = {}
        self._working: dict[str, list[Call]] = defaultdict(list)
        #: When it first asked with a token, in a mode and with a window: another watch of the run may ask with it anew.
        self._asked_from: dict[tuple[str, Mode, int], int] = {}
        #: The token of an ask that has no answer yet, by run and mode, and when it was sent.
        self._unanswered: dict[tuple[str, str, Mode], tuple[str, int]] = {}
        self._first_claims: Counter[str] = Counter()
        self._seen_to: dict[tuple[str, int], int] = {}
        #: When it is to ask again for a run that it watches, by then; and what was left of the lease.
        self._checks: dict[tuple[str, str], tuple[int, int, int]] = {}
        self._drawn: dict[str, list[int]] = defaultdict(list)
        self._withdrawn: dict[str, int] = {}
        #: First claims that failed and were not asked for again since.
        self._given_up: dict[str, tuple[str, int]] = {}
        #: The newest slot that was asked for and has no answer yet; and the newest that was asked for at all.
        self._pending: dict[str, int] = {}
        self._newest_asked: dict[str, int] = {}
        self._known_begun: set[tuple[str, str]] = set()
        self._no_more: set[str] = set()
        self._skips: dict[tuple[str, int], str] = {}
        self._recovered: set[str] = set()
        self._left: dict[tuple[str, str], int] = {}
        self._first_ask_ms: int | None = None
        self._stopping_from_ms: int | None = None
        self._failed: set[str] = set()
        #: When it first heard what time it is.
        self._knows_time_from_ms: int | None = None

    # -- told by the line

    def sent(self, verb: str, values: tuple[Any, ...]) -> None:
        if self._host.where.killed:
            return  # a thread that is unwound
        self.in_flight[verb] += 1
        if verb == "claim":
            self._complain(*self._claims(values[0]))
        elif verb in ("heartbeat", "finish", "release"):
            hold = self._holds.get(values[2])
            if hold is not None and verb == "heartbeat":
                self._complain(*hold.beats(self._now_ms))
            elif hold is not None:
                self._complain(*hold.renewed(self._now_ms), *self._ends(hold, verb, *values[3:]))
                hold.end_sent = True
            elif verb == "finish":
                self._withdrawn.pop(values[2], None)
        elif verb == "save_result":
            self._complain(*self._saves(values[1]))

    def answered(self, verb: str, values: tuple[Any, ...], sent_ms: int, answer: Any) -> None:
        self.in_flight[verb] -= 1
        self._failed -= {verb, _ALSO_OVER.get(verb)}
        if verb in ("claim", "time") and self._knows_time_from_ms is None:
            self._knows_time_from_ms = self._now_ms
        if verb == "claim":
            self._heard(values[0], answer)
        elif verb == "heartbeat" and values[2] in self._holds:
            self._holds[values[2]].beat(sent_ms, self._now_ms, answer)
        elif verb in ("finish", "release") and values[2] in self._holds:
            hold = self._holds[values[2]]
            self._complain(*hold.renewed(self._now_ms))
            hold.ends.append(answer)
            hold.over_ms = hold.over_ms or self._now_ms
            if verb == "release" and answer is Verdict.OK and values[4] and self._stopping_from_ms is None:
                # Given back since its lease was lost: this instance is as good a backup as any.
                self._checks[values[0], values[1]] = (self._now_ms, 0, 0)
                self._known_begun.add((values[0], values[1]))
        elif verb == "save_result":
            for hold in self._holds_of(values[1]):
                hold.saved = True
        elif verb == "active":
            self._recovers(values[0], answer)

    def failed(self, verb: str, values: tuple[Any, ...], sent_ms: int) -> None:
        self.in_flight[verb] -= 1
        if verb == "claim":
            self._first_claims[values[0].job] -= _is_first(values[0])
            if _is_first(values[0]):
                self._given_up[values[0].token] = values[0].job, self._now_ms
        elif verb == "heartbeat" and values[2] in self._holds:
            self._holds[values[2]].beat(sent_ms, self._now_ms, None)

    # -- told by handlers and listeners

    def begins(self, call: Call) -> None:
        hold = self._holds.get(call.ctx.token or "")
        if self._is_blocked(call.ctx.job, self._now_ms):
            self._complain(f"a handler of {call.ctx.job} is called while another is left behind")
        self._working[call.ctx.job].append(call)
        self._complain(*(["a handler is called without a grant"] if hold is None else hold.begins(call)))
        if self._stopping_from_ms is not None and self._now_ms > self._stopping_from_ms:
            self._complain(f"a handler of {call.ctx.job} is called after a stop began")

    def hears(self, event: Event) -> None:
        if event.type in _RESULTS and event.record is not None:
            hold = next(self._holds_of(event.record), None)
            if hold is None or not hold.ends:
                self._complain(f"{event.type} of {event.job} {event.run_id} is told before its end is stored")
            elif hold.ends[-1] is not Verdict.OK and not hold.saved:
                self._complain(f"the end of {hold} was refused, and what really happened is not stored")
        elif event.type == "skip" and event.slot is not None:
            key = (str(event.job), to_ms(event.slot))
            self._seen_to.setdefault(key, self._now_ms)
            reason = self._skips.pop(key, event.reason)
            if event.reason != reason:
                self._complain(f"the skip of {key} is told as {event.reason} and not as {reason}")
        elif event.type == "error" and event.operation in _VERBS:
            if event.operation in self._failed:
                self._complain(f"the outage is told twice: {event.operation}")
            self._failed.add(event.operation)

    def clock_stepped(self) -> None:
        """What it knew of the store's time was reckoned from its own clock; until it is answered it has that alone."""
        self._knows_time_from_ms = None

    def stops(self) -> None:
        """A stop begins."""
        self._stopping_from_ms = self._now_ms

    def stopped(self, ended: bool) -> None:
        """A stop has returned."""
        if ended and any(hold.call is None and not hold.end_sent for hold in self._holds.values()):
            self._complain("a stop that says that all has ended left a grant that was not given back")
        # A manual run that is asked for when all has ended, but the stop has yet to return, is one after the stop.
        began_ms = self._stopping_from_ms
        after = sum(1 for asked_ms in self._asked_from.values() if began_ms is not None and asked_ms > began_ms)
        if ended and self.in_flight["claim"] > after:
            self._complain("a stop that says that all has ended left a claim on its way")
        if ended and any(call.ended_ms is None for calls in self._working.values() for call in calls):
            self._complain("a stop that says that all has ended left a handler at work")

    # -- what is asked

    def _claims(self, request: ClaimRequest) -> Iterator[str]:
        now_ms, key = self._now_ms, (request.job, request.run_id, request.mode)
        late_ms = EPOCH_MS + now_ms - request.slot_ms
        token, sent_ms = self._unanswered.get(key, (request.token, now_ms))
        asked_with = request.token, request.mode, request.window_ms
        first_ask = asked_with not in self._asked_from
        self._asked_from.setdefault(asked_with, now_ms)
        self._unanswered[key] = (request.token, now_ms)
        self._given_up.pop(request.token, None)
        # Two that ask for one manual run are two claims; and a newer slot's watch takes the place of an older one's.
        newer = self._newest_asked.get(request.job, 0) > request.slot_ms
        another = request.manual or (request.mode is Mode.TAKEOVER and newer)
        if token != request.token and now_ms - sent_ms <= _PAUSE_MS and self._knows_the_time and not another:
            yield f"{key} is asked for again with another token"
        if first_ask and self._is_blocked(request.job, now_ms - 50):
            yield f"{key} is asked for while a handler of the job is left behind"
        if request.manual:
            self._withdrawn[request.token] = now_ms
            if self._is_well(now_ms) and first_ask and abs(late_ms) > _NOISE_MS:
                yield f"the slot of the manual run {request.run_id} is {late_ms} ms ago when it is first asked for"
        elif request.mode is Mode.START:
            yield from self._claims_first(request, first_ask, late_ms)
        else:
            yield from self._checks_on(request)
        if request.trigger == "takeover" and request.mode is Mode.START:
            yield f"a backup asks to start {request.run_id}"
        if request.mode is Mode.TAKEOVER and not request.run_id.isdigit():
            yield f"the manual run {request.run_id} is asked for by a backup"

    def _claims_first(self, request: ClaimRequest, first_ask: bool, late_ms: int) -> Iterator[str]:
        job, slot_ms, now_ms = request.job, request.slot_ms, self._now_ms
        options = self._jobs[job].options
        what = f"{request.trigger} {job} {request.run_id}"
        if self._first_ask_ms is None:
            self._first_ask_ms = now_ms
        if late_ms >= -_NOISE_MS:
            self._seen_to.setdefault((job, slot_ms), now_ms)
        self._first_claims[job] += 1
        if self._first_claims[job] > 1:
            yield f"two first claims of {job} are on their way at once"
        newer_ms, self._pending[job] = self._pending.get(job, 0), slot_ms
        self._newest_asked[job] = max(slot_ms, self._newest_asked.get(job, 0))
        soon_ms = options.jitter_ms + _NOISE_MS
        if not self._knows_the_time or self._paused(now_ms - late_ms, now_ms - late_ms + soon_ms):
            return
        # One that is still to come was asked for while the time was not known: it gives way.
        if first_ask and slot_ms < newer_ms <= EPOCH_MS + now_ms + _NOISE_MS:
            yield f"{what} takes the place of {newer_ms}, which is newer"
        if late_ms < -_NOISE_MS:
            yield f"{what} is asked for {-late_ms} ms before its slot"
        limit_ms = request.window_ms + (soon_ms if first_ask else _PAUSE_MS)
        if late_ms > limit_ms and (first_ask or not self._paused(now_ms - late_ms, now_ms)):
            yield f"{what} is asked for {late_ms} ms after its slot"
        newest_ms = self._jobs[job].schedule.newest_at(EPOCH_MS + now_ms - soon_ms)
        # One to catch up on is asked for in its own time, perhaps after a newer slot was seen to.
        came_meanwhile = newest_ms - EPOCH_MS > self._asked_from[request.token, request.mode, request.window_ms]
        if newest_ms > slot_ms and (request.trigger == "scheduled" or came_meanwhile):
            if not self._paused(newest_ms - EPOCH_MS, now_ms):
                yield f"{what} is asked for, and {newest_ms} is due"
        if request.trigger == "catch-up" and slot_ms - EPOCH_MS > self._host.made_ms + _NOISE_MS:
            yield f"{what} came after the start"

    def _checks_on(self, request: ClaimRequest) -> Iterator[str]:
        """A backup asks."""
        now_ms, key = self._now_ms, (request.job, request.run_id)
        for call in self._at_work(request.job, now_ms):
            if call.ctx.run_id == request.run_id and call.ctx.reason is None:
                yield f"{key} is asked for by the instance that runs it"
        if request.token in self._no_more:
            yield f"{key} is watched still, and nobody can start it any more"
        if now_ms - self._left.get(key, -1_000) < 100:
            yield f"{key} is to be taken over, and a newer slot is due"
        if key in self._checks:
            heard_ms, earliest_ms, left_ms = self._checks.pop(key)
            if now_ms < earliest_ms:
                yield f"{key} is asked for again {earliest_ms - now_ms} ms too early"
            if not self._paused(heard_ms, now_ms) and not self._at_work(request.job, 0):
                heartbeat_ms = self._jobs[request.job].options.heartbeat_ms
                if now_ms - heard_ms > left_ms > 0 and left_ms < heartbeat_ms:
                    self._drawn[f"{request.job} after a lease's end"].append(now_ms - heard_ms - left_ms)
                elif now_ms - heard_ms < 2 * heartbeat_ms + 10:
                    self._drawn[f"{request.job} while a lease lasts"].append(now_ms - heard_ms)

    def _heard(self, request: ClaimRequest, reply: ClaimReply) -> None:
        now_ms, key = self._now_ms, (request.job, request.run_id)
        asked_from_ms = self._asked_from.pop((request.token, request.mode, request.window_ms), now_ms)
        self._unanswered.pop((*key, request.mode), None)
        self._withdrawn.pop(request.token, None)
        if _is_first(request):
            self._first_claims[request.job] -= 1
            self._pending.pop(request.job, None)
            # The store has answered for another slot: what it granted unseen is told as what is in the way.
            self._given_up = {token: given for token, given in self._given_up.items() if given[0] != request.job}
            reason = self._reason(request, reply, EPOCH_MS + asked_from_ms - request.slot_ms)
            if reason is not None:
                self._skips[request.job, request.slot_ms] = reason
            if reply.outcome is Outcome.OVERLAP and reply.holder is not None:
                # It was renewed meanwhile, and is in the way: that one is watched.
                self._left.pop((request.job, reply.holder.run_id), None)
        if reply.outcome is Outcome.RUNNING:
            self._known_begun.add(key)
        if reply.outcome is Outcome.WON:
            job = self._jobs[request.job]
            self._holds[request.token] = Hold(job, request, now_ms, [(now_ms, asked_from_ms)], self._paused)
            self._checks.pop(key, None)
        elif request.mode is Mode.TAKEOVER:
            heartbeat_ms = self._jobs[request.job].options.heartbeat_ms
            left_ms = reply.holder.lease_left_ms if reply.holder and reply.outcome is Outcome.RUNNING else 1 << 30
            if reply.outcome is Outcome.NONE and reply.store_time_ms - request.slot_ms > request.window_ms:
                self._no_more.add(request.token)
            if reply.outcome in (Outcome.RUNNING, Outcome.OVERLAP):
                self._checks[key] = (now_ms, now_ms + min(heartbeat_ms, left_ms + 1) - 5, left_ms)

    def _reason(self, request: ClaimRequest, reply: ClaimReply, late_ms: int) -> str | None:
        """What an answer to a first claim is to be told as; None: not as a skip, or it cannot be told from here."""
        if reply.outcome is Outcome.DONE and reply.done is DoneReason.PASSED:
            if not self._knows_the_time or abs(late_ms - request.window_ms) < _NOISE_MS:
                return None
            return "late" if late_ms < request.window_ms else "taken"
        return _SKIPS.get(reply.outcome)

    def _recovers(self, job: str, unfinished: list[ActiveRun]) -> None:
        """It has heard at its start what is unfinished."""
        self._recovered.add(job)
        newest_ms = self._jobs[job].schedule.newest_at(EPOCH_MS + self._now_ms - _NOISE_MS)
        for run in unfinished:
            key = (job, run.run_id)
            # One that was met already, before the store could be asked, is watched as it was.
            if run.lease_left == 0 and to_ms(run.slot) < newest_ms and key not in self._checks:
                self._left[key] = self._now_ms

    def _ends(self, hold: Hold, verb: str, record: RunRecord, counts: bool | None = None) -> Iterator[str]:
        if verb == "release" and hold.request.manual:
            yield f"the manual run {hold} is released"
        if verb == "release" and record.status != "interrupted":
            yield f"{hold} is released, and was {record.status}"
        if verb == "finish" and record.status == "interrupted" and not hold.request.manual:
            yield f"{hold} is finished, and was interrupted"
        if verb == "release" and hold.call is not None and counts is not (hold.call.ctx.reason == "lease-lost"):
            yield f"{hold} is released for {hold.call.ctx.reason}, counts: {counts}"

    def _saves(self, record: RunRecord) -> Iterator[str]:
        hold = next(self._holds_of(record), None)
        if hold is None or Verdict.LOST not in hold.ends:
            yield f"the result of {record.run_id} is stored beside its end before that was tried"
        if not record.lease_lost:
            yield f"the result of {record.run_id} is stored without saying that its lease was lost"

    # -- afterwards

    def judge(self) -> None:
        """What it did not do, up to now, or until its process was gone."""
        fleet = self._host.fleet
        gone_ms = fleet.gone_ms.get(self._host.name, fleet.kernel.now_ms)
        ended_ms = fleet.ended_ms.get(self._host.name, fleet.kernel.now_ms)
        for hold in self._holds.values():
            self._complain(*hold.judged(ended_ms))
        for token, sent_ms in self._withdrawn.items():
            if gone_ms > sent_ms + 10_000 and not self._paused(sent_ms, gone_ms):
                self._complain(f"a manual run was asked for with {token}, given up and not withdrawn")
        for token, (_, failed_ms) in self._given_up.items():
            if gone_ms > failed_ms + _PAUSE_MS and not self._paused(failed_ms, gone_ms):
                self._complain(f"a first claim with {token} may have been granted, and nobody watches it")
        for (job, run_id), (heard_ms, _, left_ms) in self._checks.items():
            options = self._jobs[job].options
            left_ms = min(left_ms, options.lease_ms) + options.heartbeat_ms
            by_ms = heard_ms + max(2 * options.heartbeat_ms, left_ms) + 100
            if (job, run_id) in self._known_begun and options.timeout_ms is None and by_ms < gone_ms:
                if self._is_well(by_ms):
                    self._complain(f"{job} {run_id} was to be watched, and is not since {heard_ms} ms")
        if self._is_well(gone_ms) and gone_ms > self._host.made_ms + 30_000:
            self._complain(*(f"{job} was not recovered" for job in set(self._jobs) - self._recovered))
        self._complain(*self._held_back(gone_ms), *self._slots_not_seen_to(gone_ms))

    def drawn(self) -> dict[str, list[int]]:
        """What it is to draw at random, by what it is."""
        return self._drawn

    def _held_back(self, gone_ms: int) -> Iterator[str]:
        """A store that is down at the start holds back no timer by more than one call."""
        made_ms, first_ms = self._host.made_ms, self._first_ask_ms or 1 << 62
        by_ms = made_ms + 4_000
        if gone_ms > by_ms and first_ms > by_ms and not self._paused(made_ms, by_ms):
            yield f"nothing was asked for in the first {by_ms - made_ms} ms"

    def _slots_not_seen_to(self, gone_ms: int) -> Iterator[str]:
        """A host that is well asks for each slot when it comes, or says why not."""
        for job in self._jobs.values():
            slot_ms = job.schedule.next_after(EPOCH_MS + self._host.made_ms + 10_000)
            while (by_ms := slot_ms - EPOCH_MS + job.options.jitter_ms + _NOISE_MS) < gone_ms:
                seen_ms = self._seen_to.get((job.name, slot_ms), 1 << 62)
                if seen_ms > by_ms and self._is_well(by_ms):
                    yield f"{job.name} {slot_ms - EPOCH_MS} ms is not asked for by {by_ms} ms but at {seen_ms}"
                slot_ms = job.schedule.next_after(slot_ms)

    # -- what several of them ask

    @property
    def _now_ms(self) -> int:
        return self._host.fleet.kernel.now_ms

    @property
    def _knows_the_time(self) -> bool:
        """And for a while, not counting pauses: what was armed by a clock that was wrong is asked for all the same."""
        if self._knows_time_from_ms is None:
            return False
        since_ms = self._knows_time_from_ms
        for begin_ms, end_ms in self._host.paused_ms:
            if begin_ms <= since_ms + 10_000:
                since_ms = max(since_ms, end_ms)
        return self._now_ms - since_ms > 10_000

    def _complain(self, *complaints: str) -> None:
        for what in complaints if self._host.fleet.judges_conduct else ():
            self._host.fleet.complain(f"{self._host.name}: {what}")

    def _holds_of(self, record: RunRecord) -> Iterator[Hold]:
        for hold in reversed(self._holds.values()):
            if (hold.request.job, hold.request.run_id) == (record.job, record.run_id):
                yield hold

    def _at_work(self, job: str, told_before_ms: int) -> list[Call]:
        """The handlers of a job that are at work here, and were told (if they were) before an instant."""
        calls = self._working[job] = [call for call in self._working[job] if call.ended_ms is None]
        return [call for call in calls if (call.told_ms or 0) <= told_before_ms]

    def _is_blocked(self, job: str, since_ms: int) -> bool:
        """Whether a handler that has outlived its timeout has forbidden another run here since an instant."""
        stuck = any(call.ctx.reason == "timeout" for call in self._at_work(job, since_ms))
        return stuck and self._jobs[job].options.overlap == "skip"

    def _paused(self, first_ms: int, last_ms: int) -> bool:
        return any(begin <= last_ms and end >= first_ms - 50 for begin, end in self._host.paused_ms)

    def _is_well(self, when_ms: int) -> bool:
        """Whether nothing was in its way for a while before an instant."""
        since_ms, known_ms = when_ms - 10_000, self._knows_time_from_ms
        if known_ms is None or when_ms < known_ms + 10_000:
            return False
        if known_ms > self._host.made_ms + 100 and when_ms < known_ms + 61_000:
            return False  # a timer that was armed by the host's clock waits for a minute at the longest
        troubles = [*self._host.unable, *self._host.fleet.server_away]
        return not any(begin <= when_ms and (end is None or end >= since_ms) for begin, end in troubles)


#: What is known to work again when another call is answered.
_ALSO_OVER = {"finish": "heartbeat", "release": "heartbeat", "save_result": "heartbeat", "claim": "time"}
_SKIPS = {Outcome.RUNNING: "taken", Outcome.OVERLAP: "overlap", Outcome.LATE: "late", Outcome.DONE: "taken"}
_VERBS = ("claim", "heartbeat", "finish", "release", "save_result", "time", "active", "history")


def _is_first(request: ClaimRequest) -> bool:
    return request.mode is Mode.START and not request.manual
