"""The client that is made from a URL: a ``redis.Redis`` whose scripts take no detour, and travel in groups.

redis-py looks at every connection before it uses it, takes locks, wraps each call for repeats that are turned off here,
and tells its telemetry: half of what a short script costs. Here a script is packed, sent on a connection that nobody
else uses meanwhile, and answered. Whatever else is asked goes redis-py's way.

And where many threads send scripts at once, most of the time goes into handing Python's one lock around: twice for each
call. So while scripts of some threads are on their way, those that come in the meantime wait for an answer to these,
and then one thread sends them all in one write and reads all the answers (*group commit*: DeWitt et al.,
"Implementation techniques for main memory database systems", 1984). A script that comes alone is sent at once.

  thread A    sends a ───────── answer to a; makes C the leader
  thread B        waits ·······················  answer to b
  thread C     waits ·········· leads: sends c, b ── answers

Guarantees:

- A group holds up nobody for long: who has waited ``PATIENCE_MS`` for its turn sends its script alone.
- An answer that does not come, or a connection that breaks, fails every script of the group that has no answer yet:
  whether they were done is not known, as with any call that fails. An error in one script is that one's alone.
- The main thread leads and follows nobody: Ctrl-C may end what it does at any instruction.
- A connection that has idled for a second is looked at, as redis-py does always: a server that closes idle ones, or was
  started anew meanwhile, is connected to again, and no call fails for it.
- ``hang_up`` closes every connection that is idle; one in use is closed when its group has been answered.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from typing import Any

import redis

from anarchon.clock import SystemClock

__all__ = ["PATIENCE_MS", "GroupingRedis"]

PATIENCE_MS = 50

_LOOK_AFTER_MS = 1_000

# A server is waited for in real time, whatever clock a scheduler was given.
_clock = SystemClock()

#: How many groups are on their way at once, and how many scripts go in one.
_GROUPS = 2
_LARGEST = 64


class _Script:
    """One script that a thread wants answered."""

    __slots__ = ("answer", "answered", "error", "leads", "packed", "told")

    def __init__(self, words: tuple[Any, ...]) -> None:
        self.packed = _packed(words)
        self.answer: Any = None
        self.error: Exception | None = None
        self.answered = False
        self.leads = False
        #: Where a thread waits for its turn: set when the script is answered, or the thread is to lead.
        self.told: threading.Event | None = None

    def tell(self) -> None:
        self.answered = True
        if self.told is not None:
            self.told.set()


class GroupingRedis(redis.Redis):
    """A ``redis.Redis`` that sends scripts (EVALSHA and EVAL) in groups. Used on any thread."""

    def __init__(self, connection_pool: redis.ConnectionPool) -> None:
        super().__init__(connection_pool=connection_pool)
        #: Connections, and since when they idle; None: they have to connect.
        self._idle: deque[tuple[Any, int | None]] = deque()
        self._connections = 0
        self._hung_up = 0
        self._lock = threading.Lock()
        self._waiting: deque[_Script] = deque()
        self._leaders = 0

    def execute_command(self, *words: Any, **options: Any) -> Any:
        """As redis-py's; a script's answer comes as bytes."""
        if words[0] not in ("EVALSHA", "EVAL"):
            return super().execute_command(*words, **options)  # type: ignore[no-untyped-call]
        script = _Script(words)
        if threading.current_thread() is threading.main_thread():
            self._send([script])
        elif self._is_to_lead(script):
            self._lead(script)
        if script.error is not None:
            raise script.error
        return script.answer

    def hang_up(self) -> None:
        """Closes what is idle, and what is in use after its group; all of it connects anew when it is used."""
        self._hung_up += 1
        for _ in range(len(self._idle)):
            try:
                connection, _ = self._idle.popleft()
            except IndexError:  # taken meanwhile
                return
            connection.disconnect()
            self._idle.append((connection, None))

    def _is_to_lead(self, script: _Script) -> bool:
        """Waits for its turn. True: this thread is to lead the next group. False: the script was answered.

        The race between a turn that comes and patience that ends:
          1. thread B waits; A, whose group was answered, is about to make B the leader
          2. B's patience is over; it takes the lock first, leaves the queue, and sends alone: A finds another, or none
          3. or A takes it first: B finds itself out of the queue, and hears that it leads
        """
        with self._lock:
            if self._leaders < min(_GROUPS, self.connection_pool.max_connections):
                self._leaders += 1
                return True
            script.told = _clock.event()
            self._waiting.append(script)
        if not _clock.wait(script.told, PATIENCE_MS):
            with self._lock:
                alone = script in self._waiting
                if alone:
                    self._waiting.remove(script)
            if alone:
                self._send([script])
                return False
            _clock.wait(script.told, None)
        return script.leads

    def _lead(self, script: _Script) -> None:
        """Sends this thread's script and those that wait, and then makes another thread the leader."""
        with self._lock:
            others = [self._waiting.popleft() for _ in range(min(len(self._waiting), _LARGEST - 1))]
        try:
            self._send([script, *others])
        finally:
            with self._lock:
                following = self._waiting.popleft() if self._waiting else None
                if following is None:
                    self._leaders -= 1
            if following is not None and following.told is not None:
                following.leads = True
                following.told.set()

    def _send(self, group: list[_Script]) -> None:
        """One write, and the answers in their order; each thread is told as soon as it has its own."""
        hung_up, since_ms, clean = self._hung_up, None, False
        try:
            connection = self._take()
        except BaseException as error:
            self._fail(group, error)
            return
        try:
            connection.connect()  # unless it is
            begun_ms, longest_s = _clock.monotonic_ms(), connection.socket_timeout
            connection.send_packed_command([b"".join([script.packed for script in group])], check_health=False)
            for script in group:
                if longest_s and _clock.monotonic_ms() - begun_ms > longest_s * 1000:
                    raise redis.TimeoutError("The answers came too slowly, one after another.")
                try:
                    script.answer = connection.read_response(disable_decoding=True)
                except redis.ResponseError as error:
                    script.error = error
                script.tell()
            since_ms, clean = _clock.monotonic_ms(), True
        except BaseException as error:
            try:
                connection.disconnect()
                clean = True
            finally:
                self._fail(group, error)
        finally:
            self._give(connection, since_ms if hung_up == self._hung_up else None, clean)

    def _fail(self, group: list[_Script], error: BaseException) -> None:
        """Tells those that have no answer yet; what ends a thread, such as Ctrl-C, is raised in this one."""
        for script in group:
            if not script.answered:
                script.error = _of_one(error)
                script.tell()
        if not isinstance(error, Exception):
            raise error

    def _take(self) -> Any:
        try:
            connection, since_ms = self._idle.pop()
        except IndexError:
            return self._new()
        if since_ms is not None and _clock.monotonic_ms() - since_ms > _LOOK_AFTER_MS and _is_over(connection):
            connection.disconnect()
        return connection

    def _new(self) -> Any:
        """One more connection, which connects when it is used. The pool's own are for what is no script."""
        pool = self.connection_pool
        with self._lock:
            if self._connections >= pool.max_connections:
                raise redis.ConnectionError("Too many connections")
            self._connections += 1
        return pool.connection_class(**pool.connection_kwargs)

    def _give(self, connection: Any, since_ms: int | None, clean: bool) -> None:
        """Puts a connection back; since when it idles, or None where it is to connect anew.

        One that may have an answer on its way, since Ctrl-C came and once more before it was closed, is let go: that
        answer would be taken for the next script's.
        """
        if not clean:
            with self._lock:
                self._connections -= 1
            return
        if since_ms is None:
            connection.disconnect()
        self._idle.append((connection, since_ms))


def _packed(words: tuple[Any, ...]) -> bytes:
    """A command as it goes over the wire; a third of the time that redis-py takes, which makes ready for any value."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, int):
            word = b"%d" % word
        elif isinstance(word, str):
            word = word.encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)


def _is_over(connection: Any) -> bool:
    """Whether the other side has closed it: it can be read, though nothing was asked."""
    try:
        return bool(connection.can_read(timeout=0))
    except (redis.RedisError, OSError):
        return True


def _of_one(error: BaseException) -> Exception:
    """An error of a whole group, for one of its threads: one object, raised in several, would mix up tracebacks."""
    if not isinstance(error, Exception):
        return redis.ConnectionError("The call was interrupted.")
    try:
        return copy.copy(error)
    except Exception:  # its class takes other arguments than it keeps
        return redis.ConnectionError(f"{type(error).__name__}: {error}")
