"""The rules of docs/protocol.rst, each left out or turned round in turn: what a careless edit would do to them.

A mutant is a copy of the rules with one snippet of text replaced; test_mutants.py asks that somebody notices. A snippet
that is no longer in the rules is an error, so that this table moves with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from anarchon.backends import claims, state


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        rule: the line of the claim table, or the call or passage of the page, that it breaks.
        fault: what the broken rules do.
        old, new: the snippet, which is there exactly once, and what stands in its place.
        of: the module that has the snippet.
        noticed_by: the test, as ``file::name``, where walks seldom come by; empty: the walks beside the model.
    """

    rule: str
    fault: str
    old: str
    new: str
    of: ModuleType = claims
    noticed_by: str = ""

    def rules(self) -> ModuleType:
        """The module ``claims`` with the fault in it."""
        broken_state = self._copy(state)
        broken_claims = self._copy(claims)
        broken_claims.Run = broken_state.Run  # type: ignore[attr-defined]
        return broken_claims

    def _copy(self, module: ModuleType) -> ModuleType:
        text = Path(str(module.__file__)).read_text(encoding="utf-8")
        if module is self.of:
            assert text.count(self.old) == 1, f"{self}: the snippet is there {text.count(self.old)} times"
            text = text.replace(self.old, self.new)
        copy = ModuleType(module.__name__)
        exec(compile(text, f"mutant of {module.__name__}", "exec"), vars(copy))
        return copy

    def __str__(self) -> str:
        return f"{self.rule}: {self.fault}"


SUPERSEDED = "if not run.manual and job.latest_ms is not None and run.slot_ms < job.latest_ms:  # 4"
HELD = "if request.token == run.token and not run.released:  # 5"
USED_UP = "if run.counted >= (1 if run.manual else request.max_attempts):  # 6"
PASSED = "if latest_ms is not None and slot_ms <= latest_ms <= now_ms:  # 10"
LATE = "if now_ms - slot_ms > (MANUAL_WINDOW_MS if request.manual else request.window_ms):  # 11"
REPLACED = "replaced = run.manual or (not request.manual and run.slot_ms < slot_ms)"
CLOSE = "    _close(job, run, token, now_ms)\n"
STALE = "replaced = not run.manual and job.latest_ms is not None and job.latest_ms > run.slot_ms"

MUTANTS = [
    Mutant("1", "a finished run is not known as one", "if job.finished(request.run_id):  # 1", "if False:"),
    Mutant("2", "the holder is a stranger to itself", "if run.token == request.token:  # 2", "if False:"),
    Mutant("2", "any token is taken for the holder's", "if run.token == request.token:  # 2", "if True:"),
    Mutant("2", "a repeat renews nothing", "    _renew(job, run, request.lease_ms, now_ms)\n", ""),
    Mutant(
        "2",
        "a repeat names another latest",
        "now_ms, run.latest_before_ms, run.attempt",
        "now_ms, job.latest_ms, run.attempt",
    ),
    Mutant(
        "3",
        "a live lease stands in nobody's way",
        "    if run.live(now_ms):\n        if run.token",
        "    if False:\n        if run.token",
    ),
    Mutant("4", "nothing is superseded", SUPERSEDED, "if False:"),
    Mutant("4", "the newest slot is superseded too", SUPERSEDED, SUPERSEDED.replace("<", "<=")),
    Mutant("4", "manual runs are superseded", SUPERSEDED, SUPERSEDED.replace("not run.manual and ", "")),
    Mutant("4", "a superseded run is left open", f"{SUPERSEDED}\n        _give_up(job, run, now_ms)", SUPERSEDED),
    Mutant("5", "the holder's late repeat is a stranger's", HELD, "if False:"),
    Mutant("5", "a released attempt is revived", HELD, HELD.replace(" and not run.released", "")),
    Mutant("5", "a late repeat minds no overlap", "_overlap(job, in_the_way, now_ms) if in_the_way else _won", "_won"),
    Mutant("5", "a late repeat wins a new attempt", "if _has_held(job, run, request.token):  # 5", "if False:"),
    Mutant("5", "tokens of attempts before the last are forgotten", " or token in run.held_before", ""),
    Mutant("5", "tokens that released the run are forgotten", " or job.ended_by(run.run_id, token) is not None", ""),
    Mutant("6", "attempts without end", USED_UP, "if False:"),
    Mutant("6", "one attempt too many", USED_UP, USED_UP.replace(">=", ">")),
    Mutant("6", "a manual run has as many as are asked for", USED_UP, "if run.counted >= request.max_attempts:"),
    Mutant("6", "an exhausted run is left open", f"{USED_UP}\n        _give_up(job, run, now_ms)", USED_UP),
    Mutant("7", "a takeover minds no overlap", "    if in_the_way:  # 7", "    if False:"),
    Mutant("7", "the asker's rule does not count", '"skip" in (overlap, other.overlap)', '"skip" == other.overlap'),
    Mutant("7", "the other run's rule does not count", '"skip" in (overlap, other.overlap)', '"skip" == overlap'),
    Mutant("7", "both must forbid", '"skip" in (overlap, other.overlap)', '"skip" == overlap == other.overlap'),
    Mutant(
        "7",
        "runs whose lease is over are in the way",
        "if other is not run and other.live(now_ms) and",
        "if other is not run and",
    ),
    Mutant("7", "the oldest of the runs in the way is named", "max(others, key", "min(others, key"),
    Mutant("8", "the attempt before is not recorded", "    _record_lost(job, run, now_ms)  # 8\n", ""),
    Mutant("8", "the attempt number stands still", "run.attempt + 1, run.counted + 1", "run.attempt, run.counted + 1"),
    Mutant("8", "attempts are not counted", "run.attempt + 1, run.counted + 1", "run.attempt + 1, run.counted"),
    Mutant("8", "a released attempt is recorded lost", "if run.released or job.has_record", "if job.has_record"),
    Mutant(
        "8",
        "lost is written over a result",
        "if run.released or job.has_record(run.run_id, run.attempt)",
        "if run.released",
    ),
    Mutant("8", "a lost attempt begins after its end", "= min(run.started_at_ms, now_ms)", "= run.started_at_ms"),
    Mutant("9", "a run may start before its slot", "if slot_ms > now_ms:  # 9", "if False:"),
    Mutant("9", "a run may not start at its very slot", "if slot_ms > now_ms:  # 9", "if slot_ms >= now_ms:"),
    Mutant(
        "9, 10",
        "manual runs are slots too",
        "    if not request.manual:\n        if slot_ms",
        "    if True:\n        if slot_ms",
    ),
    Mutant("10", "what has passed may start", PASSED, "if False:"),
    Mutant(
        "10",
        "the newest slot has not passed",
        PASSED,
        PASSED.replace("slot_ms <= latest", "slot_ms < latest"),
        noticed_by="test_first_claims.py::test_finished_run_that_was_forgotten_has_passed",
    ),
    Mutant("10", "latest counts only in the past", PASSED, PASSED.replace("latest_ms <= now", "latest_ms < now")),
    Mutant("10", "a latest in the future stops the job", PASSED, PASSED.replace(" <= now_ms", "")),
    Mutant("11", "nothing is late", LATE, "if False:"),
    Mutant("11", "late at the very end of the window", LATE, LATE.replace(">", ">=")),
    Mutant("11", "manual runs have a slot's window", LATE, "if now_ms - slot_ms > request.window_ms:"),
    Mutant(
        "12", "a backup starts a run", "if not request.manual and request.mode is Mode.TAKEOVER:  # 12", "if False:"
    ),
    Mutant("12", "the line is for manual runs too", "if not request.manual and request.mode is", "if request.mode is"),
    Mutant("13", "a start minds no overlap", "    if in_the_way:  # 13", "    if False:"),
    Mutant(
        "14",
        "latest is never raised",
        "job.latest_ms = slot_ms if latest_ms is None else max(latest_ms, slot_ms)",
        "pass",
    ),
    Mutant("14", "latest is lowered", "slot_ms if latest_ms is None else max(latest_ms, slot_ms)", "slot_ms"),
    Mutant(
        "14",
        "a manual run raises latest",
        "    if not request.manual:\n        job.latest_ms",
        "    if True:\n        job.latest_ms",
    ),
    Mutant("14", "nothing is closed", "        if replaced and not run.live(now_ms):\n", "        if False:\n"),
    Mutant("14", "live runs are closed", "if replaced and not run.live(now_ms):", "if replaced:"),
    Mutant("14", "newer dead runs are closed", REPLACED, REPLACED.replace(" and run.slot_ms < slot_ms", "")),
    Mutant("14", "dead manual runs are left open", REPLACED, REPLACED.replace("run.manual or ", "")),
    Mutant("14", "a manual grant closes scheduled runs", REPLACED, REPLACED.replace("not request.manual and ", "")),
    Mutant(
        "14", "a closed run is not remembered", "    _close(job, run, None, now_ms)", "    del job.runs[run.run_id]"
    ),
    Mutant("14", "closed without a record", "    _record_lost(job, run, now_ms)\n    _close", "    _close"),
    Mutant(
        "14",
        "the answer names no latest",
        "ClaimReply(Outcome.WON, now_ms, job.latest_ms, attempt, job.fence)",
        "ClaimReply(Outcome.WON, now_ms, None, attempt, job.fence)",
    ),
    Mutant("fence", "it does not follow the clock", "job.fence = max(job.fence + 1, now_ms)", "job.fence += 1"),
    Mutant("fence", "it follows the clock alone", "job.fence = max(job.fence + 1, now_ms)", "job.fence = now_ms"),
    Mutant("leases", "none is cut by a claim", "ClaimReply:\n    _cut_leases(job, now_ms)\n", "ClaimReply:\n"),
    Mutant("leases", "none is cut by a heartbeat", "Verdict:\n    _cut_leases(job, now_ms)\n", "Verdict:\n"),
    Mutant("leases", "a grant ends none for good", "    _end_leases_over(job, now_ms)\n    job.fence", "    job.fence"),
    Mutant(
        "leases",
        "a return to life ends none for good",
        "    if not run.live(now_ms):\n        _end_leases_over(",
        "    if False:\n        _end_leases_over(",
    ),
    Mutant("leases", "live at its very end", "self.lease_until_ms > now_ms", "self.lease_until_ms >= now_ms", state),
    Mutant("leases", "live though released", "not self.released and ", "", state),
    Mutant("leases", "live though ended for good", " and not self.ended", "", state),
    Mutant("leases", "a renewal does not undo the end", "        self.ended = False\n", "", state),
    Mutant("leases", "a renewal keeps the old length", "        self.lease_ms = lease_ms\n", "", state),
    Mutant(
        "heartbeat", "an end of one's own is an alarm", "        return Verdict.FINISHED", "        return Verdict.LOST"
    ),
    Mutant("heartbeat", "a newer slot does not matter", STALE, "replaced = False"),
    Mutant("heartbeat", "newer slots end manual runs", STALE, STALE.replace("not run.manual and ", "")),
    Mutant(
        "heartbeat",
        "an overlap does not matter",
        "if replaced or _in_the_way(job, run, run.overlap, now_ms):",
        "if replaced:",
    ),
    Mutant(
        "heartbeat",
        "a lease that is over stays so",
        "if replaced or _in_the_way(job, run, run.overlap, now_ms):",
        "if True:",
    ),
    Mutant("heartbeat", "nothing is renewed", "    _renew(job, run, lease_ms, now_ms)\n", ""),
    Mutant("finish", "a repeat is lost", "    if job.ended_by(run_id, token):\n        return Verdict.OK\n", ""),
    Mutant(
        "finish",
        "whoever released may finish",
        "    if job.ended_by(run_id, token):\n",
        "    if job.ended_by(run_id, token) is not None:\n",
    ),
    Mutant("finish", "the run stays unfinished", "    _close(job, run, token, now_ms)\n    _save", "    _save"),
    Mutant(
        "finish",
        "the record is not kept",
        f"{CLOSE}    _save(job, granted(record, run.attempt, run.fence), run.history_limit)\n",
        CLOSE,
    ),
    Mutant(
        "finish",
        "attempt and fence are the caller's",
        "    _close(job, run, token, now_ms)\n    _save(job, granted(record, run.attempt, run.fence),",
        "    _close(job, run, token, now_ms)\n    _save(job, record,",
    ),
    Mutant(
        "finish",
        "anybody's token will do",
        "and run.token == token and not run.released else None",
        "and not run.released else None",
    ),
    Mutant(
        "finish",
        "whoever released still holds the run",
        "and run.token == token and not run.released else None",
        "and run.token == token else None",
    ),
    Mutant(
        "finish",
        "a lease that is over is an obstacle",
        "    if run is None:\n        return Verdict.LOST\n    _close(",
        "    if run is None or not run.live(now_ms):\n        return Verdict.LOST\n    _close(",
    ),
    Mutant(
        "release",
        "a lease that is over is an obstacle",
        "    if run is None:\n        return Verdict.LOST\n    if run.manual:",
        "    if run is None or not run.live(now_ms):\n        return Verdict.LOST\n    if run.manual:",
    ),
    Mutant(
        "release",
        "attempt and fence are the caller's",
        "finished=False, now_ms=now_ms)\n    _save(job, granted(record, run.attempt, run.fence),",
        "finished=False, now_ms=now_ms)\n    _save(job, record,",
    ),
    Mutant(
        "release",
        "a repeat is lost",
        "    if run is None and job.ended_by(run_id, token) is not None:\n        return Verdict.OK\n",
        "",
    ),
    Mutant("release", "the lease lasts on", "        run.released = True\n", ""),
    Mutant("release", "every attempt counts", "        run.counted -= 0 if counts else 1\n", ""),
    Mutant("release", "no attempt counts", "run.counted -= 0 if counts else 1", "run.counted -= 1"),
    Mutant(
        "release",
        "a manual run stays unfinished",
        "    if run.manual:\n        # Nobody",
        "    if False:\n        # Nobody",
    ),
    Mutant(
        "release",
        "the token is not remembered",
        "        _remember(job, run, token, finished=False, now_ms=now_ms)\n",
        "",
    ),
    Mutant(
        "release",
        "the record is not kept",
        "finished=False, now_ms=now_ms)\n    _save(job, granted(record, run.attempt, run.fence), run.history_limit)\n",
        "finished=False, now_ms=now_ms)\n",
    ),
    Mutant("save_result", "nothing is saved", "    _save(job, record, job.history_limit)", "    pass"),
    Mutant(
        "save_result",
        "it keeps to another limit",
        "    _save(job, record, job.history_limit)",
        "    _save(job, record, 10_000)",
    ),
    Mutant("active", "a lease that is over has some left", "/ 1000 if run.live(now_ms) else 0.0", "/ 1000"),
    Mutant(
        "active",
        "a lease is not cut",
        "min(run.lease_until_ms - now_ms, run.lease_ms)",
        "(run.lease_until_ms - now_ms)",
    ),
    Mutant(
        "active", "oldest first", "sorted(runs, key=lambda run: -run.fence)", "sorted(runs, key=lambda run: run.fence)"
    ),
    Mutant("history", "cut below the unfinished runs", "keep=max(history_limit, len(job.runs))", "keep=history_limit"),
    Mutant("history", "never cut", "keep=max(history_limit, len(job.runs))", "keep=10_000"),
    Mutant(
        "history",
        "cut to a limit that is not the newest grant's",
        "    job.history_limit = request.history_limit\n",
        "",
    ),
    Mutant(
        "remembered",
        "for ten minutes however long the lease",
        "max(REMEMBER_MS, 2 * run.lease_ms)",
        "REMEMBER_MS",
        noticed_by="test_what_is_kept.py::test_end_is_remembered_for_ten_minutes_and_for_two_leases",
    ),
    Mutant(
        "remembered",
        "for two leases however short",
        "max(REMEMBER_MS, 2 * run.lease_ms)",
        "2 * run.lease_ms",
        noticed_by="test_what_is_kept.py::test_end_is_remembered_for_ten_minutes_and_for_two_leases",
    ),
]
