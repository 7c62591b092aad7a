"""The public face: a registry of jobs over one store. The parts that run them are wired in ``engine.py``."""

from __future__ import annotations

import difflib
import logging
import os
import socket
import threading
from collections.abc import Callable
from datetime import datetime, tzinfo
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, overload

from anarchon.backends import ClaimOnlyBackend, LeaseBackend, open_backend
from anarchon.callables import check_takes
from anarchon.durations import Duration, from_ms, parse_duration
from anarchon.errors import ConfigurationError, JobNotRegistered, shown
from anarchon.events import Events, Listener, Log, check_event_type
from anarchon.forks import meet_fork
from anarchon.job import Handler, Job, check_job_name, make_call
from anarchon.options import parse_options, resolve_options
from anarchon.process import guard, in_signal_handler, on_stop_signals
from anarchon.records import ActiveRun, Event, JobInfo, RunRecord
from anarchon.runners.local_runs import LeftBehind, stopping
from anarchon.schedules import Schedule, cron, every, parse_zone, zone_name
from anarchon.sources import Sources
from anarchon.store import ClaimOnlyStore, Store
from anarchon.threads import on_library_thread, start_from_signal

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from anarchon.engine import Engine
    from anarchon.executor import AroundRun
    from anarchon.options import GivenOptions, JobOptions

__all__ = ["Backend", "Scheduler"]

Backend = LeaseBackend | ClaimOnlyBackend | str
_H = TypeVar("_H", bound=Callable[..., object])
_L = TypeVar("_L", bound=Callable[[Event], object])

_logger = logging.getLogger("anarchon")

#: How long the main thread waits at a time. A signal that comes just before it begins to wait does not end that wait.
_PIECE_MS = 1_000

#: What a scheduler takes by name, beside the defaults of its jobs.
_SCHEDULER_OPTIONS = ("timezone", "instance_id", "log", "around_run", "sources")


class Scheduler:
    """Runs scheduled jobs on the threads of this process, each due slot once among all processes that share the store.

    Args:
        backend: a backend object, or a URL for ``open_backend``.
        timezone: of cron texts, and of instants shown to people: a name (pytz's data) or a tzinfo.
        instance_id: who this is, in history and logs. None: host, process id and a random part. After a fork a child
            makes a new one; one that was given gets the child's process id appended.
        log: True to log every event to the logger ``anarchon``, or a logger. None: no event is logged; what concerns
            the process itself (a fork, a clock that differs, a handler over its timeout) always is, to ``anarchon``.
        around_run: a callable that takes the context and returns a context manager, entered around every handler call
            on its thread.
        sources: where time, chance and threads come from, for tests and simulations; None: the real ones.
        options: defaults for the jobs: lease, heartbeat, jitter, max_late, catch_up, overlap, max_attempts, timeout,
            history_limit.

    Raises:
        ConfigurationError: an argument is none of what was expected.

    Every method may be called on any thread.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        timezone: str | tzinfo = "UTC",
        instance_id: str | None = None,
        log: Log = None,
        around_run: AroundRun | None = None,
        sources: Sources | None = None,
        **options: Unpack[GivenOptions],
    ) -> None:
        self._backend = _open(backend)
        self._zone = parse_zone(timezone)
        self._sources = sources or Sources()
        self._given_id = _check_instance_id(instance_id)
        self._events = Events(log)
        if around_run is not None:
            check_takes(around_run, "around_run", "the context")
        self._around_run = around_run
        self._defaults = parse_options(options, _SCHEDULER_OPTIONS)
        resolve_options(self._defaults, {})
        self._jobs: dict[str, Job] = {}
        self._instance_id = self._given_id or self._make_id()
        self._engine: Engine | None = None
        self._stopping: list[Engine] = []
        self._begin_anew()
        guard(self)

    def __repr__(self) -> str:
        return f"<Scheduler {self._instance_id} jobs={len(self._jobs)} backend={self._backend!r}>"

    @property
    def instance_id(self) -> str:
        """Who this is, in history and logs."""
        meet_fork()
        return self._instance_id

    @property
    def backend(self) -> LeaseBackend | ClaimOnlyBackend:
        """The store that this scheduler asks."""
        return self._backend

    @property
    def timezone(self) -> tzinfo:
        """The zone of cron texts, and of instants shown to people."""
        return self._zone

    # -- registering

    @overload
    def every(self, name: str, interval: Duration, handler: Handler, **options: Unpack[GivenOptions]) -> Self: ...
    @overload
    def every(self, name: str, interval: Duration, **options: Unpack[GivenOptions]) -> Callable[[_H], _H]: ...
    def every(self, name: str, interval: Duration, handler: Any = None, **options: Any) -> Any:
        """Registers a job that is due at every multiple of the interval since the Unix epoch.

        All instances, restarts and deploys so name the same slots: "10s" is due at :00, :10, :20 everywhere.

        Args:
            name: unique on this scheduler; what the store and the history know the job by.
            interval: ``"10s"``, a timedelta or a number of seconds.
            handler: takes the context or nothing. None: this returns a decorator.
            options: the job's own; they go before the scheduler's.

        Returns:
            The scheduler, for chaining; or a decorator that returns the function as it was.

        Raises:
            ConfigurationError: a name, interval, handler or option that is none of what was expected, a name that is
                registered already, or a store whose time-outs are too long for the lease.
        """
        return self._register_or_decorate(name, every(interval), handler, options)

    @overload
    def cron(
        self, name: str, text: str, handler: Handler, *, seconds: bool = False, **options: Unpack[GivenOptions]
    ) -> Self: ...
    @overload
    def cron(
        self, name: str, text: str, *, seconds: bool = False, **options: Unpack[GivenOptions]
    ) -> Callable[[_H], _H]: ...
    def cron(self, name: str, text: str, handler: Any = None, *, seconds: bool = False, **options: Any) -> Any:
        """Registers a job by a cron text, in the scheduler's time zone; clock changes follow Debian's cron.

        Args:
            text: five fields, or ``@daily`` and the like; six with the seconds first where ``seconds`` is True.

        Everything else, the errors included, is as for ``every``.
        """
        return self._register_or_decorate(name, cron(text, self._zone, seconds=seconds), handler, options, ("seconds",))

    @overload
    def on(self, event: str, listener: Listener) -> Self: ...
    @overload
    def on(self, event: str) -> Callable[[_L], _L]: ...
    def on(self, event: str, listener: Any = None) -> Any:
        """Calls ``listener`` with each event of that type, on the thread where it happened; without one, a decorator.

        One that raises is logged and harms nobody. Returns the scheduler, or the listener where it decorates.

        Raises:
            ConfigurationError: an unknown event, or a listener that cannot be called.
        """
        check_event_type(event)
        if listener is None:
            return lambda function: self._listen(event, function)
        self._listen(event, listener)
        return self

    def off(self, event: str, listener: Listener) -> Self:
        """Removes a listener; nothing happens where it was not.

        Raises:
            ConfigurationError: an unknown event.
        """
        with self._lock:
            self._events.off(event, listener)
        return self

    # -- starting and stopping

    def start(self) -> Self:
        """Starts the timers and returns at once; the threads are daemons. Nothing happens where it is started.

        First each job's unfinished runs are looked after: watched while their lease is live, taken over where it is
        over. A store that is away is asked again, and does not hold back the timers by more than one call.

        Raises:
            RuntimeError: the process has no thread left to give, or is one of uWSGI's without ``enable-threads``;
                nothing was started.
        """
        meet_fork()
        with self._lock:
            self._stopped = False
            engine = self._engine
            if engine is not None and engine.stopping:
                self._stopping.append(engine)
                engine = None
            if engine is None:
                engine = self._engine = self._new_engine()
            elif engine.started:
                return self
            engine.begin()
            jobs = list(self._jobs.values())
        for job in jobs:
            engine.start(job)
        return self

    def stop(self, timeout: Duration | None = "25s") -> bool:
        """Stops: no new runs, every run's signal is set (reason ``stop``), and their handlers are waited for.

        A run that is interrupted is released, so that another instance takes it over at once. One still going when the
        time is up keeps its heartbeat while the process lives. Safe twice, and before start; start after stop works.

        From a handler or a listener it does not wait for that run itself. From a signal handler it only queues the
        stop and returns False.

        Args:
            timeout: how long to wait; None: without limit.

        Returns:
            True if every run ended in time.

        Raises:
            ConfigurationError: not a duration.
        """
        timeout_ms = None if timeout is None else parse_duration(timeout, "timeout")
        if in_signal_handler():
            start_from_signal(lambda: self._stop(timeout_ms))
            return False
        return self._stop(timeout_ms)

    def run_forever(self, stop_timeout: Duration | None = "25s") -> bool:
        """Starts, waits for SIGTERM or SIGINT (or a stop elsewhere), and stops. For worker processes.

        A second signal does what it did before this was called: Ctrl-C twice ends the process.

        Returns:
            What ``stop`` returned.
        """
        return self._run_forever(stop_timeout, lambda: None)

    def _run_forever(self, stop_timeout: Duration | None, started: Callable[[], object]) -> bool:
        """As ``run_forever``; ``started`` is called when the jobs are, and signals stop them."""
        if stop_timeout is not None:
            parse_duration(stop_timeout, "stop_timeout")
        clock = self._sources.clock
        told = self._stop_asked = clock.event()
        with on_stop_signals(told.set):
            self.start()
            started()
            while not clock.wait(told, _PIECE_MS):
                pass
            return self.stop(stop_timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # -- asking

    def jobs(self) -> list[JobInfo]:
        """This instance's jobs, in the order of their registration."""
        return [self._info(job) for job in list(self._jobs.values())]

    def next_run(self, name: str) -> datetime:
        """The job's next slot, as an aware datetime in the scheduler's time zone.

        Raises:
            JobNotRegistered: not registered on this scheduler.
            OverflowError: there is none within a hundred years.
        """
        job = self._job(name)
        return self._local(job.schedule.next_after(self._store.clock.now_ms(name)))

    @overload
    def run_now(self, name: str) -> RunRecord: ...
    @overload
    def run_now(self, name: str, *, wait: Duration | None) -> RunRecord | None: ...
    def run_now(self, name: str, *, wait: Duration | None = None) -> RunRecord | None:
        """Runs a job on this instance, on a library thread, and returns its record when the run has ended.

        Needs no start. Whatever the handler raises is in the record. While this waits, Ctrl-C sets the run's signal,
        waits up to ten seconds for it to end, and is raised as it came.

        Args:
            wait: how long to wait for the end of the run, at the most; ``0`` only starts it. None: without limit.

        Returns:
            The record; None where the run goes on after that time: the history will have its record.

        Raises:
            ConfigurationError: ``wait`` is not a duration.
            JobNotRegistered: not registered on this scheduler.
            RunRefused: another run is in the way and one of them says overlap ``skip``; or this scheduler is stopping.
            BackendError: the store could not be asked.
        """
        return self._run_once(name, wait, None)

    def _run_once(self, name: str, wait: Duration | None, once: str | None) -> RunRecord | None:
        """As ``run_now``; whatever process asks with the same token, a store with leases grants it one run."""
        wait_ms = None if wait is None else parse_duration(wait, "wait")
        job = self._job(name)
        with self._lock:
            engine = self._engine
            if engine is None or (engine.stopping and engine.over()):
                engine = self._engine = self._new_engine()
        if engine.stopping:
            raise stopping(name)
        return engine.run_now(job, wait_ms, once)

    def _run_unless_stopped(self, name: str, *, wait: Duration | None = None) -> RunRecord | None:
        """As ``run_now``, but not from a stop to the next start: a process that ends with its stop would cut it off."""
        wait_ms = None if wait is None else parse_duration(wait, "wait")
        job = self._job(name)
        with self._lock:
            if self._stopped:
                raise stopping(name)
            if self._engine is None:
                self._engine = self._new_engine()
            engine = self._engine
        return engine.run_now(job, wait_ms)

    def history(self, name: str, limit: int = 20) -> list[RunRecord]:
        """The newest records of any job, registered or not, newest first. Needs no start, and never writes.

        Raises:
            ConfigurationError: not a job's name, or a limit that is not a whole number of 1 or more.
            BackendError: the store could not be read.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1_000_000:
            raise ConfigurationError(f"limit must be a whole number from 1 to 1000000, not {shown(limit)}.")
        meet_fork()
        return self._store.history(check_job_name(name), limit)

    def last_run(self, name: str) -> RunRecord | None:
        """The newest record of any job, or None; as ``history``."""
        return next(iter(self.history(name, 1)), None)

    def active(self, name: str) -> list[ActiveRun]:
        """What has not finished of any job: where it runs, which attempt, how much lease is left; as ``history``.

        Empty on a claim-only store, which does not know.
        """
        meet_fork()
        return self._store.active(check_job_name(name))

    def forget(self, name: str) -> None:
        """Removes all that the store keeps of a job, history included. For a job that is gone from the code.

        Raises:
            ConfigurationError: the job is registered here, or that is no job's name.
            BackendError: the store could not be reached.
        """
        if check_job_name(name) in self._jobs:
            raise ConfigurationError(f"Job {name!r} is registered: a job is forgotten when it is gone from the code.")
        meet_fork()
        self._store.forget(name)

    # -- inside

    def _register_or_decorate(
        self, name: str, schedule: Schedule, handler: Any, options: dict[str, Any], beside: tuple[str, ...] = ()
    ) -> Any:
        check_job_name(name)
        if name in self._jobs:
            raise ConfigurationError(f"A job named {name!r} is registered already.")
        resolved = resolve_options(self._defaults, parse_options(options, beside), schedule.interval_ms)
        if isinstance(self._backend, LeaseBackend):
            self._backend.bound_calls(resolved.lease_ms // 3)
        else:
            self._backend.keep_claims(name, lambda slot_ms: _asked_until_ms(schedule, resolved, slot_ms))

        # What runs jobs is half of the package, and who registers none never needs it. Not at the first start: a fork
        # while another thread imports it would leave the child with a module that nobody ever finishes.
        import_module("anarchon.engine")

        def register(function: Any) -> Any:
            job = Job(name, schedule, function, make_call(function, name), resolved)
            with self._lock:
                if self._jobs.setdefault(name, job) is not job:
                    raise ConfigurationError(f"A job named {name!r} is registered already.")
                engine = self._engine
            if engine is not None and engine.started and not engine.stopping:
                engine.start(job)
            return function

        if handler is None:
            return register
        register(handler)
        return self

    def _listen(self, event: str, listener: _L) -> _L:
        with self._lock:
            self._events.on(event, listener)
        return listener

    def _stop(self, timeout_ms: int | None) -> bool:
        meet_fork()
        clock = self._sources.clock
        deadline_ms = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
        with self._lock:
            self._stopped = True
            engines = [engine for engine in (*self._stopping, self._engine) if engine is not None]
        ended = True
        for stopped in engines:
            left_ms = None if deadline_ms is None else max(0, deadline_ms - clock.monotonic_ms())
            ended = stopped.stop(left_ms) and ended
        with self._lock:
            # One that is not over is kept, even where this was called from its last run: the next stop waits for it.
            self._stopping = [engine for engine in self._stopping if not engine.over()]
            if self._engine in engines and self._engine is not None and self._engine.over():
                self._engine = None
            if self._engine is None and not self._stopping:
                self._backend.close()
        self._stop_asked.set()
        return ended

    def _new_engine(self) -> Engine:
        from anarchon.engine import Engine

        return Engine(
            self._store, self._sources, self._events.emit, self._around_run, self._instance_id, self._left_behind
        )

    def _begin_anew(self) -> None:
        """As made, or as a fork left it: nothing that a thread or a lock of the parent belongs to is kept."""
        self._lock = threading.Lock()
        self._left_behind = LeftBehind()
        self._engine = None
        self._stopping = []
        self._stopped = False
        self._stop_asked = self._sources.clock.event()
        self._store = self._new_store()

    def _new_store(self) -> Store | ClaimOnlyStore:
        if isinstance(self._backend, LeaseBackend):
            return Store(self._backend, self._sources, self._tell_error)
        return ClaimOnlyStore(self._backend, self._sources, self._tell_error)

    def _tell_error(self, operation: str, job: str, error: BaseException) -> None:
        self._events.emit(Event("error", job, self._instance_id, operation=operation, exception=error))

    def _forked(self) -> None:
        engine = self._engine
        self._instance_id = f"{self._given_id}.{os.getpid()}" if self._given_id else self._make_id()
        self._begin_anew()
        if engine is not None and engine.started and not engine.stopping and not on_library_thread():
            # Not where a handler forked: a worker of its own, such as multiprocessing's, is not to run jobs.
            _logger.warning(
                "This process was forked from one whose scheduler was started; threads do not survive a fork, so no job"
                " runs here. Call scheduler.start() in the child: from gunicorn's post_fork hook, from a function that"
                " uWSGI's @postfork decorates, or after daemonizing."
            )

    def _begin_exit(self) -> None:
        for engine in (self._engine, *self._stopping):
            if engine is not None:
                engine.begin_exit()

    def _end_exit(self, end_ms: int) -> None:
        for engine in (self._engine, *self._stopping):
            if engine is not None:
                engine.end_exit(end_ms)

    def _make_id(self) -> str:
        return f"{socket.gethostname()}-{os.getpid()}-{self._sources.chance.token()[1:9]}"

    def _job(self, name: str) -> Job:
        meet_fork()
        if not isinstance(name, str):
            check_job_name(name)
        job = self._jobs.get(name)
        if job is None:
            nearest = difflib.get_close_matches(name, self._jobs, n=1)
            raise JobNotRegistered(name, nearest[0] if nearest else None)
        return job

    def _info(self, job: Job) -> JobInfo:
        try:
            next_run = self.next_run(job.name)
        except OverflowError:
            next_run = None
        return JobInfo(
            name=job.name,
            kind=job.schedule.kind,
            schedule=job.schedule.text,
            timezone=zone_name(self._zone),
            next_run=next_run,
            options=job.options.shown(),
        )

    def _local(self, slot_ms: int) -> datetime:
        return from_ms(slot_ms).astimezone(self._zone)


def _open(backend: object) -> LeaseBackend | ClaimOnlyBackend:
    if isinstance(backend, (LeaseBackend, ClaimOnlyBackend)):
        return backend
    if isinstance(backend, str):
        return open_backend(backend)
    raise ConfigurationError(
        f"backend must be a backend object or a URL such as 'redis://localhost:6379/0', not {type(backend).__name__}."
    )


def _asked_until_ms(schedule: Schedule, options: JobOptions, slot_ms: int) -> int:
    """Until when an instance asks for a slot: while it is not late, or to catch up on it.

    Until the next slot comes due that may be an instance of a later version, whose ``catch_up`` is longer.
    """
    asked_ms = slot_ms + max(options.max_late_ms, options.catch_up_ms or 0)
    try:
        return max(asked_ms, schedule.next_after(slot_ms))
    except OverflowError:
        return asked_ms


def _check_instance_id(instance_id: object) -> str | None:
    if instance_id is None:
        return None
    if not isinstance(instance_id, str) or not 1 <= len(instance_id) <= 200 or not instance_id.isprintable():
        raise ConfigurationError(f"instance_id must be 1 to 200 printable characters, not {shown(instance_id)}.")
    return instance_id
