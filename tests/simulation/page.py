"""Writes ``docs/mutants.rst``: each rule left out, the test that kills it, and whether the simulation sees it.

::

    python tests/simulation --page    # tries all mutants first; that takes a few minutes
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from faults import FAULTS, Fault
from mutants import MUTANTS, Mutant
from trials import Sight
from unseen import UNSEEN

__all__ = ["PAGE", "page", "rows", "written"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mutants.rst"

_HEAD = """\
Mutants
=======

.. This page is written by ``python tests/simulation --page`` and not by hand.

Each rule of :doc:`protocol` and of an instance's side is left out here, or turned round, one after the other: what a
careless edit might do. Each such *mutant* of the library is killed by a test of the suite: with it in place that test
fails. ``tests/contract/test_mutants.py`` and ``tests/unit/test_faults.py`` do this every time, so that no rule is there
that nothing would miss.

Nearly all of them are also seen by the simulation, which lets storms loose on whole fleets in virtual time
(:doc:`developing`), and judges what comes of it; the judges know no mutant in particular. The last column has the
seed and the second of virtual time at which it is seen, and by what:

model
    An answer of the store differs from that of a second store, written from :doc:`protocol` alone.

conduct
    An instance does on its way to the store, in its handlers or in its events what its side of the protocol forbids.

oracle
    What the handlers wrote down is not what was due; see :class:`~anarchon.testing.SlotOracle`.

exception, hang
    A thread raised what nobody handled, or the fleet never came to rest.

A storm is drawn at random, and comes by too seldom at what takes two things within a few milliseconds. So there are
storms that are *aimed*: each waits for one step of one call or thread, and strikes there. The column has the name of
the aim (``tests/simulation/aims.py``); with that and the seed it plays again.

Where the simulation does not see one, the column says why. All of them once more, which takes a few minutes and
fails if one goes unseen that should not::

    pytest -m soak tests/simulation/test_mutants.py

"""

_PROTOCOL = """\
Of the claim protocol
---------------------

The first column names the line of the claim table, or the call. *The walks* are random ones, beside the second store
(``tests/contract/walks.py``).

.. list-table::
   :header-rows: 1
   :widths: 10 30 30 30

   * - rule of
     - as if
     - killed by
     - seen in
"""

_INSTANCE = """\

Of an instance's side
---------------------

.. list-table::
   :header-rows: 1
   :widths: 35 35 30

   * - left out: that
     - killed by
     - seen in
"""


def page(sights: Mapping[str, Sight | None]) -> str:
    """The page, with what the trials have found by the mutant's name."""
    text = _HEAD + _PROTOCOL
    for mutant in MUTANTS:
        text += _row(*rows(mutant), _seen(str(mutant), sights))
    text += _INSTANCE
    for fault in FAULTS:
        text += _row(*rows(fault), _seen(str(fault), sights))
    return text


def rows(mutant: Mutant | Fault) -> tuple[str, ...]:
    """The cells of a mutant's row but the last."""
    if isinstance(mutant, Fault):
        return mutant.rule, _test(mutant.noticed_by)
    return mutant.rule, mutant.fault, _test(mutant.noticed_by) if mutant.noticed_by else "the walks"


def written() -> Iterator[tuple[str, ...]]:
    """The cells of every row of the page as it stands."""
    for row in PAGE.read_text(encoding="utf-8").split("   * - ")[1:]:
        cells = row.split("\n\n")[0].rstrip("\n").split("\n     - ")
        if "killed by" not in cells:
            yield tuple(cells)


def _seen(name: str, sights: Mapping[str, Sight | None]) -> str:
    if name in UNSEEN:
        return UNSEEN[name]
    sight = sights[name]
    if sight is None:
        raise ValueError(f"{name}: the simulation does not see it, and nothing says why.")
    found = re.match(r"after ([\d.]+) s:", sight.what)
    when = f", {float(found[1]):.0f} s" if found else ""
    storm = {"plain": "", "wild": "wild "}.get(sight.storm, f"*{sight.storm}*, ")
    return f"{storm}seed {sight.seed}{when}: {sight.by}"


def _test(noticed_by: str) -> str:
    return f"``{noticed_by.removeprefix('../contract/')}``"


def _row(*cells: str) -> str:
    first, *others = cells
    return f"   * - {first}\n" + "".join(f"     - {cell}\n" for cell in others)
