"""Tries each mutant in the simulation: whether it is seen, by what, in which seed, and when.

::

    python tests/simulation                 # all of them, each for up to sixteen seeds of each kind of storm
    python tests/simulation --only overlap  # those with this word in their names
    python tests/simulation --page          # those that are to be seen; writes docs/mutants.rst

The mutants are the rules of the claim protocol left out (``tests/contract/mutants.py``) and those of an instance's side
(``tests/unit/faults.py``). Each is tried in a process of its own: what it breaks may hang. One that an aim was written
for (``aims.py``) is tried there first.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from aimed import weather_an_aimed_storm
from aims import AIMED_AT, AIMS
from faults import FAULTS, Fault
from mutants import MUTANTS, Mutant
from storm import weather_a_storm
from wild import weather_a_wild_storm

from anarchon.backends import memory

#: A storm takes a few seconds, on a busy machine a minute; one that has not come to its end by then never will.
_HANGS_AFTER_S = 600

__all__ = ["ALL", "Sight", "made", "main", "seen_in", "try_all"]

ALL: dict[str, Mutant | Fault] = {str(one): one for one in (*MUTANTS, *FAULTS)}


@dataclass(frozen=True)
class Sight:
    """How a mutant was seen.

    Attributes:
        storm: ``plain``, ``wild``, or the name of the aim.
        by: ``model`` (an answer of the store that the model would not give), ``conduct`` (what an instance did),
            ``oracle``, ``exception``, or ``hang``.
        what: the complaint.
    """

    storm: str
    seed: int
    by: str
    what: str


@contextmanager
def made(mutant: Mutant | Fault) -> Iterator[None]:
    """While inside, the library is the mutant."""
    if isinstance(mutant, Fault):
        with mutant.made():
            yield
        return
    before, memory.claims = memory.claims, mutant.rules()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        memory.claims = before  # type: ignore[attr-defined]


def seen_in(seed: int, storm: str = "plain", seconds: int = 300) -> Sight | None:
    """What the simulation says of the library as it is now.

    Args:
        seconds: how long a plain or a wild storm is; an aim says so itself.
    """
    if storm in AIMS:
        outcome = weather_an_aimed_storm(AIMS[storm], seed, hasty=True)
    else:
        outcome = {"plain": weather_a_storm, "wild": weather_a_wild_storm}[storm](seed, seconds, hasty=True)
    if outcome.seen:
        by = "model" if ": the store: " in outcome.seen[0] else "conduct"
        return Sight(storm, seed, by, outcome.seen[0])
    if outcome.raised:
        return Sight(storm, seed, "exception", repr(outcome.raised[0]))
    if outcome.judgement.faults:
        return Sight(storm, seed, "oracle", str(outcome.judgement.faults[0]))
    return None


def try_all(names: Sequence[str], seeds: int) -> Iterator[tuple[str, Sight | None]]:
    """Tries them side by side, as many as there are processors."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from zip(names, pool.map(lambda name: _try_apart(name, seeds), names))


def _try_apart(name: str, seeds: int) -> Sight | None:
    command = [sys.executable, str(Path(__file__).parent), "--one", name, "--seeds", str(seeds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGALRM:
        seed, storm = done.stdout.splitlines()[-1].split(" ", 1)
        return Sight(storm, int(seed), "hang", f"it does not come to its end within {_HANGS_AFTER_S} s")
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return None if found is None else Sight(**found)


def _try_here(name: str, seeds: int) -> Sight | None:
    logging.disable(logging.CRITICAL)
    with made(ALL[name]):
        for seed, storm in _storms(name, seeds):
            print(seed, storm, flush=True)
            signal.alarm(_HANGS_AFTER_S)
            if sight := seen_in(seed, storm):
                return sight
    return None


def _storms(name: str, seeds: int) -> Iterator[tuple[int, str]]:
    """Where it is looked for: first where somebody has aimed at it, for that takes no time."""
    if name in AIMED_AT:
        yield from ((seed, AIMED_AT[name]) for seed in range(seeds))
    yield from ((seed, storm) for seed in range(seeds) for storm in ("plain", "wild"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Tries each mutant in the simulation.")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--page", action="store_true", help="write docs/mutants.rst")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        sight = _try_here(asked.one, asked.seeds)
        print(json.dumps(sight and asdict(sight)))
        return
    from page import PAGE, page  # which knows the trials
    from unseen import UNSEEN

    names = [name for name in ALL if re.search(asked.only, name) and not (asked.page and name in UNSEEN)]
    sights = {}
    for name, sight in try_all(names, asked.seeds):
        sights[name] = sight
        said = f"{sight.storm}, seed {sight.seed}, by {sight.by}: {sight.what}" if sight else "NOT SEEN"
        print(f"{name:<70} {said.splitlines()[0][:160]}", flush=True)
    print(f"{sum(sight is not None for sight in sights.values())} of {len(names)} seen")
    if asked.page:
        PAGE.write_text(page(sights), encoding="utf-8")
