"""The rules of an instance's side, each left out or turned round in turn: what a careless edit would do to them.

Every fault names the test that notices it; test_faults.py asks it to. A snippet that is no longer in its file is an
error, so that this table moves with the code.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_OPTIMIZED = inspect.CO_OPTIMIZED  # set for functions, not for the bodies of classes


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        rule: what holds while it is not there.
        file: where the rule is, within the package.
        old, new: the snippet, which is there exactly once, and what stands in its place.
        noticed_by: the test, as ``file::name`` beside this file, or ``file::name[parameters]`` of one of its cases.
    """

    rule: str
    file: str
    old: str
    new: str
    noticed_by: str

    @contextmanager
    def made(self) -> Iterator[None]:
        """While inside, the code of the package has the fault."""
        module = importlib.import_module("anarchon." + self.file.removesuffix(".py").replace("/", "."))
        text = Path(str(module.__file__)).read_text(encoding="utf-8")
        assert text.count(self.old) == 1, f"{self}: the snippet is there {text.count(self.old)} times"
        broken = compile(text.replace(self.old, self.new), str(module.__file__), "exec", dont_inherit=True)
        functions = dict(_functions(module))
        codes = {name: code for name, code in _codes(broken, "") if name in functions}
        before = {name: functions[name].__code__ for name in codes}
        try:
            for name, code in codes.items():
                functions[name].__code__ = code
            yield
        finally:
            for name, code in before.items():
                functions[name].__code__ = code

    def __str__(self) -> str:
        return self.rule


def _codes(code: CodeType, prefix: str) -> Iterator[tuple[str, CodeType]]:
    """Every function's and method's code in a module's, by its name or ``Class.name``."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & _OPTIMIZED:
                yield prefix + inner.co_name, inner
            else:
                yield from _codes(inner, f"{prefix}{inner.co_name}.")


def _functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        found: dict[str, Any] = (
            {f"{name}.{n}": v for n, v in vars(value).items()} if inspect.isclass(value) else {name: value}
        )
        for full, member in found.items():
            function = inspect.unwrap(member.fget if isinstance(member, property) else member)
            if isinstance(function, FunctionType):
                yield full, function


FAULTS = [
    # -- self-fencing
    Fault(
        "a margin is left before the lease is over",
        "heartbeat.py",
        "return min(lease_ms // 10, _LARGEST_MARGIN_MS)",
        "return 0",
        "test_heartbeat.py::test_the_holder_is_told_a_margin_before_its_lease_is_over",
    ),
    Fault(
        "the margin of a short lease is a tenth of it",
        "heartbeat.py",
        "return min(lease_ms // 10, _LARGEST_MARGIN_MS)",
        "return _LARGEST_MARGIN_MS",
        "test_heartbeat.py::test_the_margin_is_a_tenth_of_the_lease_and_at_most_a_second[5000-500]",
    ),
    Fault(
        "a lease is counted from just before its renewal was sent",
        "heartbeat.py",
        "self._trust(sent_ms)",
        "self._trust(self._sources.clock.monotonic_ms())",
        "test_heartbeat.py::test_a_slow_renewal_adds_nothing",
    ),
    Fault(
        "a claimed lease is counted from before the first ask",
        "runners/first_claims.py",
        "        if claim.asked_from_ms is None:\n            claim.asked_from_ms",
        "        if True:\n            claim.asked_from_ms",
        "test_first_claims.py::test_the_lease_is_counted_from_before_the_first_ask_of_those_that_failed",
    ),
    Fault(
        "a lease that a backup wins is counted from before the first ask",
        "runners/backup.py",
        "        if watch.asked_from_ms is None:\n",
        "        if True:\n",
        "test_backup.py::test_a_check_that_failed_is_repeated_with_the_same_token",
    ),
    Fault(
        "what was answered and not granted is not counted from",
        "runners/backup.py",
        "        watch.asked_from_ms = None\n",
        "",
        "test_backup.py::test_a_holder_that_died_is_taken_over_within_half_a_heartbeat_of_its_leases_end",
    ),
    Fault(
        "a manual run's lease is counted from before its first ask",
        "runners/lease.py",
        "return self._leased(job, request, reply, asked_from_ms)",
        "return self._leased(job, request, reply, self._parts.sources.clock.monotonic_ms())",
        "test_lease_runner.py::test_the_lease_of_a_manual_run_is_counted_from_before_its_first_ask",
    ),
    Fault(
        "the deadline is watched apart from the call that may hang",
        "heartbeat.py",
        "            self._watch()\n        try:",
        "            pass\n        try:",
        "test_heartbeat.py::test_a_renewal_that_hangs_does_not_keep_the_deadline_from_ringing",
    ),
    Fault(
        "a deadline that a renewal has moved does not ring",
        "heartbeat.py",
        "over = not self._stopped and self._sources.clock.monotonic_ms() >= self._trusted_until_ms",
        "over = not self._stopped",
        "test_heartbeat.py::test_a_deadline_that_rings_as_a_renewal_moves_it_tells_nobody",
    ),
    Fault(
        "renewals go on after the deadline",
        "heartbeat.py",
        "            self._tell_lost()\n\n    def _tell_lost",
        "            self._tell_lost()\n            self.stop()\n\n    def _tell_lost",
        "test_heartbeat.py::test_renewals_go_on_after_the_deadline",
    ),
    Fault(
        "a renewal that raced with the end alarms nobody",
        "heartbeat.py",
        "if verdict is Verdict.LOST and not self._stopped:",
        "if not self._stopped:",
        "test_heartbeat.py::test_a_renewal_that_raced_with_the_end_alarms_nobody",
    ),
    Fault(
        "a lease that the store says is lost is told",
        "heartbeat.py",
        "if verdict is Verdict.LOST and not self._stopped:",
        "if False:",
        "test_heartbeat.py::test_a_lease_that_the_store_says_is_lost_is_told_at_once_and_once",
    ),
    Fault(
        "a lost lease is told once",
        "heartbeat.py",
        "        if not told:\n",
        "        if True:\n",
        "test_heartbeat.py::test_an_answer_from_long_ago_does_not_make_the_lease_good_again",
    ),
    Fault(
        "a failed renewal is tried again sooner",
        "heartbeat.py",
        "            if tries:\n",
        "            if False:\n",
        "test_heartbeat.py::test_after_a_failure_it_is_tried_again_sooner_than_a_heartbeat",
    ),
    Fault(
        "a grant that was long on its way is renewed first",
        "heartbeat.py",
        "            self._renew_once()\n        with self._lock",
        "            pass\n        with self._lock",
        "test_heartbeat.py::test_a_grant_that_was_long_on_its_way_is_renewed_before_anything_begins",
    ),
    Fault(
        "a run whose lease is lost before it began never begins",
        "runners/leased_run.py",
        "        if self.context.reason is not None:",
        "        if False:",
        "test_lease_runner.py::test_a_run_whose_lease_was_lost_before_it_began_never_begins",
    ),
    Fault(
        "a run whose thread had not begun when the stop came never begins",
        "runners/leased_run.py",
        "        if self.context.reason is not None:",
        "        if False:",
        "test_engine.py::test_a_run_whose_thread_had_not_begun_when_the_stop_came_never_begins",
    ),
    Fault(
        "a lease that cannot be relied on before the run begins is lost",
        "runners/leased_run.py",
        "        if not heartbeat.trusted():",
        "        if False:",
        "test_lease_runner.py::test_a_run_whose_lease_ran_out_unanswered_before_it_began_never_begins",
    ),
    # -- the same token
    Fault(
        "a first claim is repeated with the same token",
        "runners/first_claims.py",
        "reply = self._claim(request)",
        "reply = self._claim(type(request)(**{**request.__dict__, 'token': self._sources.chance.token()}))",
        "test_first_claims.py::test_a_failed_claim_is_repeated_with_the_same_token_after_growing_pauses",
    ),
    Fault(
        "a check is repeated with the same token",
        "runners/backup.py",
        "reply = self._store.claim(request)",
        "reply = self._store.claim(type(request)(**{**request.__dict__, 'token': self._sources.chance.token()}))",
        "test_backup.py::test_a_check_that_failed_is_repeated_with_the_same_token",
    ),
    Fault(
        "a manual claim is repeated with the same token",
        "runners/lease.py",
        "return self._store.claim(request)",
        "return self._store.claim(replace(request, token=self._parts.sources.chance.token()))",
        "test_lease_runner.py::test_a_manual_claim_whose_answer_was_lost_is_found_again",
    ),
    Fault(
        "a claim that was given up may have been granted",
        "runners/first_claims.py",
        "        if claim.tries:\n            self._unsure(claim)",
        "        pass",
        "test_lease_runner.py::test_a_grant_whose_answer_was_lost_is_found_again_after_a_newer_slot_took_its_place",
    ),
    Fault(
        "the backups know what may have been granted before the next claim is asked",
        "runners/first_claims.py",
        "            self._give_up(claim)\n            self._leave(claim)\n",
        "            self._leave(claim)\n            self._give_up(claim)\n",
        "test_first_claims.py::test_an_answer_that_is_lost_while_a_newer_slot_waits_is_not_asked_for_again",
    ),
    Fault(
        "a token that held the run unseen gives way to another",
        "runners/backup.py",
        "if watch.first_trigger is not None and reply.outcome is Outcome.NONE:",
        "if False:",
        "test_backup.py::test_a_token_that_has_held_the_run_unseen_gives_way_to_another",
    ),
    Fault(
        "a token of a claim that may still come through is kept",
        "runners/backup.py",
        "                watch.request, watch.first_trigger = replace(watch.request, token=token), trigger\n",
        "                pass\n",
        "test_backup.py::test_another_token_is_tried_beside_the_unsure_one_and_not_in_its_place",
    ),
    # -- first claims
    Fault(
        "one first claim of a job is on its way",
        "runners/first_claims.py",
        "begin = current is None or not current.on_its_way",
        "begin = True",
        "test_first_claims.py::test_a_newer_slot_waits_for_the_answer_to_one_that_is_on_its_way",
    ),
    Fault(
        "a newer slot takes the place of one that waits to be repeated",
        "runners/first_claims.py",
        "begin = current is None or not current.on_its_way",
        "begin = current is None",
        "test_first_claims.py::test_a_newer_slot_takes_the_place_of_one_that_waits_to_be_repeated",
    ),
    Fault(
        "an older slot does not take the place of a newer one",
        "runners/first_claims.py",
        "if rival is not None and slot_ms < rival.request.slot_ms <= now_ms:",
        "if False:",
        "test_first_claims.py::test_an_older_slot_does_not_take_the_place_of_a_newer_one",
    ),
    Fault(
        "a slot to come gives way to one that is due",
        "runners/first_claims.py",
        "slot_ms < rival.request.slot_ms <= now_ms",
        "slot_ms < rival.request.slot_ms",
        "test_first_claims.py::test_a_claim_for_a_slot_to_come_gives_way_to_one_that_is_due_in_silence",
    ),
    Fault(
        "a claim is repeated only while its slot may start",
        "runners/first_claims.py",
        "again = claim.next is None and self._may_start(claim)",
        "again = claim.next is None",
        "test_first_claims.py::test_a_claim_is_given_up_as_late_when_it_may_not_start_any_more",
    ),
    Fault(
        "a slot that is still to come is asked for again",
        "runners/first_claims.py",
        "if reply.outcome is Outcome.NONE and reply.wait_ms is not None:",
        "if False:",
        "test_first_claims.py::test_a_slot_that_is_still_to_come_is_waited_for_and_asked_again",
    ),
    Fault(
        "a slot that was passed though it was asked for in time is late",
        "runners/lease.py",
        "passed_in_time = reply.done is DoneReason.PASSED and claim.in_time",
        "passed_in_time = False",
        "test_lease_runner.py::test_a_slot_that_was_passed_is_late_only_if_it_was_asked_for_in_time[20000-late]",
    ),
    # -- backups
    Fault(
        "checks after a lease's end are spread",
        "runners/backup.py",
        "return lease_left_ms + self._sources.chance.between(1, max(1, heartbeat_ms // 2))",
        "return lease_left_ms + 1",
        "test_backup.py::test_checks_after_a_leases_end_are_spread_over_half_a_heartbeat",
    ),
    Fault(
        "checks come at random times",
        "runners/backup.py",
        "delay_ms = self._sources.chance.between(heartbeat_ms, 2 * heartbeat_ms)",
        "delay_ms = heartbeat_ms",
        "test_backup.py::test_checks_come_at_random_times_between_one_and_two_heartbeats",
    ),
    Fault(
        "an overlap keeps a backup watching",
        "runners/backup.py",
        "        if reply.outcome is Outcome.OVERLAP:\n            return True",
        "        if reply.outcome is Outcome.OVERLAP:\n            return False",
        "test_backup.py::test_an_overlap_keeps_it_watching",
    ),
    Fault(
        "a run that nobody started is watched only while it may start",
        "runners/backup.py",
        "return reply.store_time_ms - request.slot_ms <= request.window_ms",
        "return True",
        "test_backup.py::test_a_watch_that_is_answered_none_for_ever_ends_with_the_window",
    ),
    Fault(
        "a run is not taken from oneself",
        "runners/backup.py",
        "self._runs.holds(request.job, request.run_id) or ",
        "",
        "test_backup.py::test_a_run_is_not_taken_from_oneself",
    ),
    Fault(
        "a backup never starts a run",
        "runners/lease.py",
        "replace(request, mode=Mode.TAKEOVER, trigger",
        "replace(request, trigger",
        "test_lease_runner.py::test_a_backup_never_starts_a_run",
    ),
    Fault(
        "a manual run is never taken over",
        "runners/lease.py",
        "        if not request.run_id.isdigit():\n            return\n",
        "",
        "test_lease_runner.py::test_overlap_with_a_manual_run_does_not_watch_that_one",
    ),
    # -- stragglers, lateness
    Fault(
        "a straggler blocks its job here",
        "runners/local_runs.py",
        'return self._left_behind[job.name] >= (1 if job.options.overlap == "skip" else LEFT_BEHIND)',
        "return False",
        "test_lease_runner.py::test_a_straggler_blocks_claims_takeovers_and_manual_runs_of_its_job_here_alone",
    ),
    Fault(
        "a straggler blocks what was on its way to be granted",
        "runners/lease.py",
        "        if self._blocked_since(job):\n            run.give_back()\n            if run",
        "        if False:\n            run.give_back()\n            if run",
        "test_lease_runner.py::test_a_grant_that_comes_after_a_handler_was_left_behind_is_given_back",
    ),
    Fault(
        "a straggler blocks a manual run that was on its way to be granted",
        "runners/lease.py",
        "            if self._blocked_since(job):\n                refusal",
        "            if False:\n                refusal",
        "test_lease_runner.py::test_a_manual_grant_that_comes_after_a_handler_was_left_behind_is_ended",
    ),
    Fault(
        "a straggler blocks what was on its way to be granted by a store without leases",
        "runners/claim_only.py",
        "        if runs.blocked(job):\n            runs.remove(context)",
        "        if False:\n            runs.remove(context)",
        "test_claim_only.py::test_a_grant_that_comes_after_a_handler_was_left_behind_begins_nothing",
    ),
    Fault(
        "a straggler blocks takeovers",
        "runners/backup.py",
        " or self._runs.blocked(watch.job)",
        "",
        "test_backup.py::test_nothing_is_taken_over_while_a_handler_of_the_job_is_left_behind",
    ),
    Fault(
        "the count of stragglers is up before the race is called lost",
        "executor.py",
        '            context._cancel("timeout")\n',
        '            self._left_behind(job.name, -1)\n            context._cancel("timeout")\n',
        "test_executor.py::test_the_count_is_up_before_the_race_is_called_lost",
    ),
    Fault(
        "a slot that is late here is not claimed",
        "engine.py",
        "        if late_ms > job.options.max_late_ms:",
        "        if False:",
        "test_engine.py::test_a_slot_that_is_late_here_is_a_skip_and_not_claimed",
    ),
    Fault(
        "missed slots are told one by one up to a hundred",
        "engine.py",
        "for _ in range(_MISSED_ONE_BY_ONE):",
        "for _ in range(1 << 40):",
        "test_engine.py::test_missed_slots_are_told_a_hundred_one_by_one_and_then_as_a_count",
    ),
    # -- the handler
    Fault(
        "a timeout sets the signal",
        "executor.py",
        '            context._cancel("timeout")\n',
        "",
        "test_executor.py::test_a_timeout_that_wins_sets_the_signal_and_the_run_has_failed",
    ),
    Fault(
        "a handler that goes on after its timeout is counted",
        "executor.py",
        "        self._left_behind(job.name, +1)\n        if race",
        "        if race",
        "test_executor.py::test_a_handler_that_goes_on_is_counted_until_it_is_gone",
    ),
    Fault(
        "a handler that returns after it was told to stop has succeeded",
        "executor.py",
        "    if exception is None:\n        # A handler",
        "    if exception is None and context.reason is None:\n        # A handler",
        "test_executor.py::test_a_handler_that_returns_after_it_was_told_to_stop_has_succeeded",
    ),
    Fault(
        "what is raised after the signal was set is an interruption",
        "executor.py",
        'if not timed_out and reason in ("stop", "lease-lost"):',
        "if False:",
        "test_executor.py::test_what_is_raised_after_the_signal_was_set_is_an_interruption",
    ),
    Fault(
        "a timeout is a failure whatever came before",
        "executor.py",
        'if not timed_out and reason in ("stop", "lease-lost"):',
        'if reason in ("stop", "lease-lost"):',
        "test_executor.py::test_a_timeout_after_a_stop_is_still_a_failure_and_the_first_reason_stays",
    ),
    Fault(
        "whatever a handler raises is its failure",
        "executor.py",
        "        except BaseException as error:\n            end_forked_child(home, error)\n            return error",
        "        except Exception as error:\n            end_forked_child(home, error)\n            return error",
        "test_executor.py::test_a_handler_that_raises_has_failed_whatever_it_raised[error1-None]",
    ),
    Fault(
        "a listener that raises harms nobody",
        "events.py",
        "            except BaseException:\n                self._complain(event)",
        "            except ZeroDivisionError:\n                self._complain(event)",
        "test_events.py::test_a_listener_that_raises_is_logged_and_the_others_are_told[error1]",
    ),
    # -- the end of a run
    Fault(
        "the heartbeat goes on until the end is stored",
        "runners/leased_run.py",
        "            record = self._store_end(ended)\n            heartbeat.stop()\n",
        "            heartbeat.stop()\n            record = self._store_end(ended)\n",
        "test_lease_runner.py::test_the_heartbeat_goes_on_until_the_end_is_stored",
    ),
    Fault(
        "the event comes after the result is stored",
        "runners/leased_run.py",
        "            record = self._store_end(ended)\n            heartbeat.stop()\n"
        "            self._parts.teller.result(self.context, ended, record)\n",
        "            record = new_record(self.context, ended, self._started_ms)\n"
        "            self._parts.teller.result(self.context, ended, record)\n"
        "            record = self._store_end(ended)\n",
        "test_lease_runner.py::test_the_event_comes_after_the_result_is_stored[<lambda>-success]",
    ),
    Fault(
        "an interrupted run is released",
        "runners/leased_run.py",
        'if ended.status == "interrupted" and not request.manual:',
        "if False:",
        "test_engine.py::test_a_run_that_a_stop_interrupts_is_released_uncounted_and_taken_over_elsewhere",
    ),
    Fault(
        "what has ended is finished and not released",
        "runners/leased_run.py",
        'if ended.status == "interrupted" and not request.manual:',
        "if not request.manual:",
        "test_lease_runner.py::test_won_runs_the_handler_and_stores_its_end",
    ),
    Fault(
        "a manual run is never released",
        "runners/leased_run.py",
        'if ended.status == "interrupted" and not request.manual:',
        'if ended.status == "interrupted":',
        "test_lease_runner.py::test_a_manual_run_that_is_interrupted_is_finished_never_released",
    ),
    Fault(
        "a stop does not count against the attempts",
        "runners/leased_run.py",
        'counts = ended.reason == "lease-lost"',
        "counts = True",
        "test_engine.py::test_a_run_that_a_stop_interrupts_is_released_uncounted_and_taken_over_elsewhere",
    ),
    Fault(
        "a lost lease counts against the attempts",
        "runners/leased_run.py",
        'counts = ended.reason == "lease-lost"',
        "counts = False",
        "test_lease_runner.py::test_a_lost_lease_counts_until_the_attempts_are_used_up",
    ),
    Fault(
        "what was given back is watched again here",
        "runners/leased_run.py",
        "                self._released()\n",
        "                pass\n",
        "test_lease_runner.py::test_a_lost_lease_that_nobody_took_is_released_counted_and_watched_again_here",
    ),
    Fault(
        "a holder that lost its lease still tries to finish",
        "runners/leased_run.py",
        "            verdict = self._store.finish(request.job, request.run_id, request.token, record)\n",
        "            verdict = Verdict.LOST if self.context.reason else self._store.finish(\n"
        "                request.job, request.run_id, request.token, record)\n",
        "test_lease_runner.py::test_a_handler_that_returns_after_its_lease_was_lost_is_finished_where_nobody_took_it",
    ),
    Fault(
        "what really happened replaces the lost record",
        "runners/leased_run.py",
        "            self._store.save_result(request.job, record)\n",
        "",
        "test_lease_runner.py::test_what_really_happened_replaces_the_lost_record_where_somebody_took_it",
    ),
    Fault(
        "a result after a lost lease is marked",
        "runners/leased_run.py",
        "record = replace(record, lease_lost=True)",
        "pass",
        "test_lease_runner.py::test_what_really_happened_replaces_the_lost_record_where_somebody_took_it",
    ),
    # -- stopping
    Fault(
        "a grant that arrives after a stop is given back",
        "runners/lease.py",
        "        if not self._parts.runs.add(run.context):\n            run.give_back()\n            return\n",
        "        if not self._parts.runs.add(run.context):\n            return\n",
        "test_engine.py::test_a_grant_that_arrives_after_the_stop_began_is_released_without_a_start_event",
    ),
    Fault(
        "no run begins after a stop began",
        "runners/local_runs.py",
        "if self._stopping or (alone and self._is_running(context.job)):",
        "if alone and self._is_running(context.job):",
        "test_engine.py::test_a_grant_that_arrives_after_the_stop_began_is_released_without_a_start_event",
    ),
    Fault(
        "a stop waits for asks in flight",
        "engine.py",
        "ended = self._asks.wait_until_idle(timeout_ms, inside)",
        "ended = True",
        "test_engine.py::test_a_grant_that_arrives_after_the_stop_began_is_released_without_a_start_event",
    ),
    Fault(
        "a stop waits for manual claims too",
        "runners/asks.py",
        "return self._workers + self._apart <= excused",
        "return self._workers <= excused",
        "test_engine.py::test_a_stop_waits_for_a_manual_claim_on_its_way_and_it_is_given_back",
    ),
    Fault(
        "a handler does not wait for its own run",
        "runners/local_runs.py",
        "return going_on.issubset(excused)",
        "return not going_on",
        "test_local_runs.py::test_a_handler_does_not_wait_for_its_own_run",
    ),
    Fault(
        "a stop from a handler leaves that run its heartbeat",
        "engine.py",
        "        if self.over():\n            self._alarms.close()",
        "        if ended:\n            self._alarms.close()",
        "test_scheduler.py::test_a_handler_that_stopped_the_scheduler_keeps_its_lease_while_it_goes_on",
    ),
    Fault(
        "an engine is kept until it is over",
        "scheduler.py",
        "if self._engine in engines and self._engine is not None and self._engine.over():",
        "if self._engine in engines:",
        "test_scheduler.py::test_run_forever_waits_for_the_handler_that_stopped_it",
    ),
    # -- clocks
    Fault(
        "of the samples the one with the shortest round trip counts",
        "store_clock.py",
        "if each.round_trip_ms <= shortest.round_trip_ms + 1]",
        "]",
        "test_store_clock.py::test_of_the_last_samples_the_one_with_the_shortest_round_trip_counts",
    ),
    Fault(
        "a sample that contradicts the others replaces them",
        "store_clock.py",
        "if not estimate.samples or estimate.stale or sample.contradicts(_shortest(estimate)):",
        "if not estimate.samples or estimate.stale:",
        "test_store_clock.py::test_a_sample_that_contradicts_the_others_replaces_them_all",
    ),
    Fault(
        "a step of the host's clock is taken out",
        "store_clock.py",
        "                estimate.difference_ms -= step_ms",
        "                pass",
        "test_store_clock.py::test_a_step_is_taken_out_also_while_the_store_is_away",
    ),
    Fault(
        "an old sample is refreshed",
        "store_clock.py",
        "return fresh and not estimate.stale",
        "return not estimate.stale",
        "test_store_clock.py::test_a_sample_older_than_ten_minutes_is_refreshed_by_a_look",
    ),
    Fault(
        "a manual run's slot is reckoned on the store's clock",
        "runners/lease.py",
        "        clock.look(job.name)\n",
        "",
        "test_scheduler.py::test_run_now_works_on_a_host_whose_clock_is_an_hour_wrong[-1h]",
    ),
    Fault(
        "a start is reckoned on the store's clock",
        "runners/lease.py",
        "            if self._store.clock.unknown(job.name):\n                self._store.read_time(job.name)\n",
        "",
        "test_lease_runner.py::test_the_start_is_reckoned_on_the_stores_clock",
    ),
    Fault(
        "slots after the start are the timer's",
        "runners/lease.py",
        "self._catch_up(job, job.schedule.newest_at(started_ms), now_ms)",
        "self._catch_up(job, job.schedule.newest_at(now_ms), now_ms)",
        "test_lease_runner.py::test_slots_after_the_start_are_the_timers_even_where_the_store_came_late",
    ),
    Fault(
        "a clock that was set back is noticed",
        "timers.py",
        "        if now.time_ms < timer.seen.time_ms - _SET_BACK_MS:",
        "        if False:",
        "test_timers.py::test_a_clock_set_back_runs_at_the_next_slot_of_the_new_time",
    ),
    Fault(
        "of several slots that came due the newest is fired",
        "timers.py",
        "newest_ms = max(slot_ms, schedule.newest_at(now.time_ms))",
        "newest_ms = slot_ms",
        "test_timers.py::test_a_suspended_machine_fires_the_newest_slot_and_tells_of_the_others",
    ),
    Fault(
        "whoever goes on with a slot is relieved first",
        "runners/asks.py",
        "return self._work if self._add(ask) and self._start(relieve) else None",
        "return self._work if self._add(ask) else None",
        "test_asks.py::test_a_thread_that_is_relieved_makes_the_ask_itself_if_there_may_be_one_more",
    ),
    Fault(
        "of samples that are as short the mean counts",
        "store_clock.py",
        "fmean([each.difference_ms for each in as_short])",
        "as_short[0].difference_ms",
        "test_store_clock.py::test_of_samples_that_are_as_short_the_mean_counts",
    ),
    Fault(
        "the clock is looked at after each wait",
        "timers.py",
        "if not self._store_clock.is_fresh(timer.job.name):",
        "if False:",
        "test_scheduler.py::test_a_clock_that_is_stepped_while_it_runs_changes_nothing",
    ),
    Fault(
        "an answer that was on its way when the clock was set is not believed",
        "store_clock.py",
        "if sent_ms < self._step_noticed_ms:",
        "if False:",
        "test_store_clock.py::test_an_answer_that_was_on_its_way_when_the_clock_was_set_is_not_believed",
    ),
    Fault(
        "a difference between the clocks is told once",
        "store_clock.py",
        " or abs(difference_ms - estimate.told_ms) <= _TELL_MS + doubt_ms",
        "",
        "test_store_clock.py::test_a_difference_is_told_once_and_again_when_it_changes_much",
    ),
    Fault(
        "a cluster has a clock a node",
        "store_clock.py",
        "        name = self.clock_of(job)\n        with self._lock:\n            return math.floor(self._clock.",
        "        name = None\n        with self._lock:\n            return math.floor(self._clock.",
        "test_store_clock.py::test_a_cluster_has_a_clock_a_node",
    ),
    Fault(
        "a wait is never longer than a minute",
        "timers.py",
        "exact_monotonic_ms() + min(left_ms, _LONGEST_WAIT_MS)",
        "exact_monotonic_ms() + left_ms",
        "test_timers.py::test_a_wait_is_never_longer_than_a_minute",
    ),
    Fault(
        "jitter delays the timer",
        "timers.py",
        "return self._chance.between(0, longest_ms)",
        "return 0",
        "test_timers.py::test_jitter_delays_the_timer_within_its_bounds_and_never_the_slot",
    ),
    Fault(
        "jitter does not delay a slot past the next",
        "timers.py",
        "if longest_ms and job.schedule.interval_ms is None:",
        "if False:",
        "test_timers.py::test_jitter_of_a_cron_job_does_not_delay_a_slot_past_the_next",
    ),
    Fault(
        "a fire that raises does not end the timer",
        "timers.py",
        "first_ms, newest_ms, relieve)\n        except Exception as error:",
        "first_ms, newest_ms, relieve)\n        except ZeroDivisionError as error:",
        "test_timers.py::test_a_fire_that_raises_is_told_and_the_next_slot_comes",
    ),
    # -- backups once more
    Fault(
        "of the runs that nobody started the newest is watched",
        "runners/backup.py",
        "        if replaced is not None:\n            self._forget(replaced)\n",
        "",
        "test_backup.py::test_only_the_newest_run_that_nobody_started_is_watched",
    ),
    Fault(
        "nothing is watched after a stop",
        "runners/backup.py",
        "            if self._closed:\n                return\n",
        "",
        "test_backup.py::test_after_close_nothing_is_asked_and_nothing_watched",
    ),
    Fault(
        "a catch-up waits for a random jitter",
        "runners/lease.py",
        "jitter_ms = self._parts.sources.chance.between(0, job.options.jitter_ms)",
        "jitter_ms = 0",
        "test_lease_runner.py::test_catch_up_waits_for_a_random_jitter",
    ),
    Fault(
        "a run whose lease is over is left where a newer slot is due",
        "runners/lease.py",
        "        elif slot_ms >= newest_ms:",
        "        elif True:",
        "test_lease_runner.py::test_a_run_whose_lease_is_over_is_left_where_a_newer_slot_is_due",
    ),
    Fault(
        "a slot older than catch_up is not run",
        "runners/lease.py",
        "if window_ms is None or now_ms - newest_ms >= window_ms:",
        "if window_ms is None:",
        "test_lease_runner.py::test_a_slot_that_is_as_old_as_catch_up_is_not_run",
    ),
    Fault(
        "a store that is down at the start is asked again",
        "runners/lease.py",
        "            self._parts.asks.after(again, lambda: self._recover(job, since_ms, asked, tries + 1))\n",
        "",
        "test_lease_runner.py::test_a_store_that_is_down_at_the_start_is_asked_again_until_it_answers",
    ),
    Fault(
        "a store that is down at the start does not hold back the timers",
        "engine.py",
        "names = list(self._waiting) if not answered else [job.name]",
        "names = [job.name] if answered else []",
        "test_engine.py::test_a_store_that_is_down_at_the_start_holds_back_no_timer_by_more_than_one_call",
    ),
    # -- the store
    Fault(
        "the newest ends are remembered whatever their age",
        "backends/memory.py",
        "if over[1] > self._ends - REMEMBER_NEWEST:",
        "if False:",
        "../contract/test_what_is_kept.py::test_newest_ends_are_remembered_whatever_their_age[memory]",
    ),
    Fault(
        "the history is in the order of the fences",
        "backends/memory.py",
        "key=lambda record: -record.fence)",
        "key=lambda record: record.fence)",
        "../contract/test_what_is_kept.py::test_history_is_newest_first_and_no_longer_than_asked[memory]",
    ),
    Fault(
        "forgetting a job removes all of it",
        "backends/memory.py",
        "            self._jobs.pop(job, None)",
        "            pass",
        "../contract/test_what_is_kept.py::test_forgetting_a_job_removes_all_of_it_and_nothing_else[memory]",
    ),
    Fault(
        "a backend is told how long its calls may take",
        "scheduler.py",
        "self._backend.bound_calls(resolved.lease_ms // 3)",
        "pass",
        "test_scheduler.py::test_the_backend_is_told_the_bound_of_each_jobs_lease",
    ),
    Fault(
        "an outage is told once",
        "store.py",
        "        if not known:\n",
        "        if True:\n",
        "test_store.py::test_an_outage_is_told_once_and_not_with_each_repeat",
    ),
    Fault(
        "one broken job does not silence a store that goes away",
        "store.py",
        "kind = (operation, type(error.__cause__ or error).__name__)",
        "kind = (operation, '')",
        "test_store.py::test_one_broken_job_does_not_silence_a_store_that_goes_away",
    ),
    Fault(
        "calls in flight are bounded",
        "store.py",
        "        with self._holding if operation in _OF_HOLDERS else self._asking:\n",
        "        if True:\n",
        "test_store.py::test_questions_in_flight_are_bounded_and_hold_up_no_holder_and_no_other_store",
    ),
    Fault(
        "questions hold up no holder of a lease",
        "store.py",
        "        with self._holding if operation in _OF_HOLDERS else self._asking:\n",
        "        with self._asking:\n",
        "test_store.py::test_questions_in_flight_are_bounded_and_hold_up_no_holder_and_no_other_store",
    ),
    Fault(
        "a handler that was left behind is remembered over a restart",
        "scheduler.py",
        "self._around_run, self._instance_id, self._left_behind",
        "self._around_run, self._instance_id, None",
        "test_restarts_and_exits.py::test_a_handler_left_behind_blocks_its_job_after_a_restart_too",
    ),
    Fault(
        "a manual run that may have been granted is withdrawn",
        "runners/lease.py",
        "            self._withdraw(job, request)\n            raise",
        "            raise",
        "test_restarts_and_exits.py::test_a_manual_run_whose_answers_were_lost_is_ended_and_in_nobodys_way",
    ),
]
