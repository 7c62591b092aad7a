"""A claim-only backend on a cache: Django's, pymemcache's, or any with an atomic ``add``.

A claim of a slot is one key, which holds the token of whoever added it first:

  1. A and B add their tokens under the key of a slot, at about the same time
  2. the cache keeps one of them, A's say, whatever it answers to either
  3. both read the key: A finds its own token and runs the slot, B finds another one and skips it
  4. had A's answer been lost, it would add and read once more, with the same token, and find it there

Guarantees, for as long as the cache keeps what it was given (``docs/cache.rst`` says what may become of it):

- A key is never used for another slot. Caches are atomic where a key has never been there; not all are where it has
  expired.
- A key is kept for longer than any instance could still ask for its slot, on a clock that differs.
- A cache that is away is an error, never a slot that somebody else has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from anarchon.backends import ClaimOnlyBackend
from anarchon.backends.cache_calls import AtomicCache
from anarchon.backends.cache_django import DjangoCaches, is_django
from anarchon.backends.cache_history import CacheHistory, added
from anarchon.backends.cache_pymemcache import PymemcacheClients, is_pymemcache
from anarchon.durations import Duration, format_duration, parse_duration
from anarchon.errors import BackendError, ConfigurationError, error_text, shown
from anarchon.records import RunRecord

__all__ = ["AtomicCache", "CacheBackend"]

#: Of printable ASCII, so that every cache takes it.
_PREFIX = re.compile(r"[!-~]{0,100}")

# More than the ten minutes that a grant may take (``ClaimOnlyBackend.keep_claims``).
_LEAST_MARGIN_MS = 15 * 60_000

#: How long a slot may be asked for where nobody has said it: a day.
_UNTOLD_MS = 86_400_000

#: From two years on a claim is kept for ever: memcached cannot count to a time after January 2038.
_LONGEST_MS = 730 * 86_400_000


class CacheBackend(ClaimOnlyBackend):
    """A claim-only backend on a cache that all processes share. Connects at its first call, not before.

    At most once: a slot whose process dies is lost, and so is the history of which the cache makes room for others. A
    cache that drops a claim while others may still ask for its slot lets that slot run again: so it needs memory of its
    own, and never a ``clear()``.

    Args:
        cache: ``django.core.cache.cache`` or ``caches["alias"]`` (Redis, memcached or the database); a pymemcache
            ``Client``, ``PooledClient``, ``HashClient`` of one server or ``RetryingClient``; or an ``AtomicCache``. It
            serves as a pattern: every call has a connection of its own, closed at its end.
        prefix: goes before every key; schedulers that share jobs share it.
        claim_margin: how much longer claims are kept than their slots can be asked for; at least 15m. Ten minutes of it
            are for calls that take long, the rest is how far the clocks of two hosts may differ.

    Raises:
        ConfigurationError: a cache that cannot say who came first (Django's local memory, file and dummy caches,
            several servers, a database cache with a small MAX_ENTRIES), anything that is no cache, or a wrong prefix
            or margin.
    """

    def __init__(self, cache: object, *, prefix: str = "anarchon:", claim_margin: Duration = "2h") -> None:
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise ConfigurationError(
                "prefix must be at most 100 printable ASCII characters without white space, for every cache to take it;"
                f" not {shown(prefix)}."
            )
        self._margin_ms = parse_duration(claim_margin, "claim_margin")
        if self._margin_ms < _LEAST_MARGIN_MS:
            raise ConfigurationError(f"claim_margin must be at least 15m, not {format_duration(self._margin_ms)}.")
        self._prefix = prefix
        self._cache = _opener(cache, longest_key=self._claim_key("", 10**15))
        self._asked_until_ms: dict[str, list[Callable[[int], int]]] = {}

    def __repr__(self) -> str:
        return f"<CacheBackend {self._cache!r} prefix={self._prefix!r}>"

    def keep_claims(self, job: str, asked_until_ms: Callable[[int], int]) -> None:
        # One backend may serve several schedulers, which may have been given different options.
        self._asked_until_ms.setdefault(job, []).append(asked_until_ms)

    def claim(self, job: str, slot_ms: int, token: str) -> bool:
        with self._open() as cache:
            return added(cache, self._claim_key(job, slot_ms), token, self._claim_kept_s(job, slot_ms)) == token

    def save_result(self, job: str, record: RunRecord, history_limit: int) -> None:
        with self._open() as cache:
            self._history(cache, job).save(record, history_limit)

    def history(self, job: str, limit: int) -> list[RunRecord]:
        with self._open() as cache:
            return self._history(cache, job).read(limit)

    def forget(self, job: str) -> None:
        """Removes the job's history. Its claims go away by themselves, when nobody can ask for their slots any more."""
        with self._open() as cache:
            self._history(cache, job).forget()

    @contextmanager
    def _open(self) -> Iterator[AtomicCache]:
        try:
            with self._cache() as cache:
                yield cache
        except BackendError:
            raise
        except Exception as error:
            raise BackendError(f"The cache could not be asked: {error_text(error)}") from error

    def _history(self, cache: AtomicCache, job: str) -> CacheHistory:
        prefix = f"{self._prefix}history:"
        return CacheHistory(cache, prefix + _short(job), prefix)

    def _claim_key(self, job: str, slot_ms: int) -> str:
        # In the order of time, and after the histories: a database cache that makes room begins with what sorts first.
        return f"{self._prefix}slot:{slot_ms:016d}:{_short(job)}"

    def _claim_kept_s(self, job: str, slot_ms: int) -> int | None:
        told = self._asked_until_ms.get(job)
        asked_ms = max(until_ms(slot_ms) for until_ms in list(told)) - slot_ms if told else _UNTOLD_MS
        kept_ms = asked_ms + self._margin_ms
        return None if kept_ms > _LONGEST_MS else -(-kept_ms // 1000)


def _opener(cache: object, longest_key: str) -> Callable[[], AbstractContextManager[AtomicCache]]:
    """What gives the cache for one call."""
    if isinstance(cache, AtomicCache):
        return _Own(cache)
    if is_django(cache):
        return DjangoCaches(cache, longest_key)
    if is_pymemcache(cache):
        return PymemcacheClients(cache, longest_key)
    raise ConfigurationError(
        "CacheBackend takes a cache object of Django's, a pymemcache client, or an AtomicCache of your own; not"
        f" {type(cache).__module__}.{type(cache).__qualname__}."
    )


class _Own:
    """A cache of the user's own making, which looks after its connections itself."""

    def __init__(self, cache: AtomicCache) -> None:
        self._cache = cache

    def __repr__(self) -> str:
        return type(self._cache).__qualname__

    def __call__(self) -> AbstractContextManager[AtomicCache]:
        return nullcontext(self._cache)


def _short(job: str) -> str:
    """A name for keys: a job's own may have 200 characters of any script, and caches take 250 bytes of ASCII."""
    return hashlib.blake2b(job.encode(), digest_size=16).hexdigest()
