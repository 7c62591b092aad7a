"""The history of a job in a cache, which has no lists, no transactions, and may lose any key at any time.

Three kinds of keys, of which none is ever used for another record:

  history:<job>                the job's generation, a random name. Added once, kept for ever, removed by ``forget``.
  history:<generation>:<n>     the n-th record. Added, never set: of two processes that write at once, each finds the
                               next number that is free, and both records are there.
  history:<generation>:newest  "oldest:newest", the numbers between which there are records. A hint: it is set by
                               whoever wrote last, so readers and writers look on from there.

What is lost of them costs records, and nothing else: without the generation a new one begins, without the hint numbers
begin at one and pass over those that are taken.
"""

from __future__ import annotations

import contextlib

from anarchon.backends.cache_calls import AtomicCache
from anarchon.chance import SystemChance
from anarchon.errors import BackendError
from anarchon.records import RunRecord, decode_record, encode_record

__all__ = ["CacheHistory", "added"]

#: Records of a yearly job are still there a year later, and what nobody finds any more goes away by itself.
_KEPT_S = 400 * 86_400

_AT_ONCE = 100

#: A database cache on SQLite gives up at once where another process is about to write.
_TRIES = 3


class CacheHistory:
    """The history of one job, for one call.

    Args:
        cache: where it is kept.
        key: of the job's generation.
        prefix: of all keys of histories.
    """

    def __init__(self, cache: AtomicCache, key: str, prefix: str) -> None:
        self._cache = cache
        self._key = key
        self._prefix = prefix

    def save(self, record: RunRecord, limit: int) -> None:
        """Adds the record and removes what is older than the newest ``limit``. Sent again it finds itself there."""
        text = encode_record(record)
        generation = added(self._cache, self._key, SystemChance().token(), None)
        oldest, number = self._hint(generation)
        while True:
            number += 1
            if added(self._cache, self._record_key(generation, number), text, _KEPT_S) == text:
                break
        # The record is there. What cannot be tidied up any more now, the next save does.
        with contextlib.suppress(Exception):
            self._tidy(generation, oldest, number, limit)

    def read(self, limit: int) -> list[RunRecord]:
        """At most ``limit`` records, newest first; those that are lost or cannot be read are passed over."""
        generation = text_of(self._cache.get(self._key))
        if generation is None:
            return []
        oldest, newest = self._hint(generation)
        while self._cache.get(self._record_key(generation, newest + 1)) is not None:
            newest += 1
        records: dict[RunRecord, None] = {}
        for first in range(newest, oldest - 1, -_AT_ONCE):
            keys = [self._record_key(generation, n) for n in range(first, max(first - _AT_ONCE, oldest - 1), -1)]
            found = self._cache.get_many(keys)
            for key in keys:
                record = decode_record(text_of(found.get(key)) or "")
                if record is not None:
                    # A save whose answer was lost, and which others overtook, may stand there twice.
                    records.setdefault(record)
            if len(records) >= limit:
                break
        return list(records)[:limit]

    def forget(self) -> None:
        """Removes the records, and all that leads to them."""
        generation = text_of(self._cache.get(self._key))
        if generation is None:
            return
        oldest, number = self._hint(generation)
        self._cache.delete(self._key)
        self._cache.delete(self._hint_key(generation))
        for old in range(oldest, number + 1):
            self._cache.delete(self._record_key(generation, old))
        while self._cache.get(self._record_key(generation, number + 1)) is not None:
            number += 1
            self._cache.delete(self._record_key(generation, number))

    def _tidy(self, generation: str, oldest: int, newest: int, limit: int) -> None:
        least = max(oldest, newest - limit + 1)
        for old in range(oldest, least):
            self._cache.delete(self._record_key(generation, old))
        # A process that was paused since it read the hint must not set it back behind what is gone by now.
        if self._hint(generation)[1] < newest:
            self._cache.set(self._hint_key(generation), f"{least}:{newest}", _KEPT_S)

    def _hint(self, generation: str) -> tuple[int, int]:
        """The numbers of the oldest and the newest record, as far as they are known."""
        found = text_of(self._cache.get(self._hint_key(generation))) or ""
        oldest, _, newest = found.partition(":")
        return (int(oldest), int(newest)) if oldest.isdecimal() and newest.isdecimal() else (1, 0)

    def _hint_key(self, generation: str) -> str:
        return f"{self._prefix}{generation}:newest"

    def _record_key(self, generation: str, number: int) -> str:
        return f"{self._prefix}{generation}:{number}"


def added(cache: AtomicCache, key: str, value: str, seconds: int | None) -> str:
    """Adds the value, unless the key has one; returns what stands there, whoever put it there.

    Whether ``add`` says that it stored the value does not count. Caches answer False where the database is away, and
    True where they did not wait for an answer.

    Raises:
        BackendError: nothing stands there.
    """
    for _ in range(_TRIES):
        cache.add(key, value, seconds)
        found = text_of(cache.get(key))
        if found is not None:
            return found
    raise BackendError("The cache did not keep what was added: it is away, full, or keeps nothing.")


def text_of(value: object) -> str | None:
    """A value as text, however the cache's client reads it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None
