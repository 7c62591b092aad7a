"""``python tests/simulation``: tries each mutant in the simulation; see trials.py."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    tests = Path(__file__).resolve().parents[1]
    # As pytest has it, by setup.cfg.
    sys.path[:0] = [str(tests.parent), *(str(tests / folder) for folder in ("", "contract", "unit"))]
    import trials

    trials.main()


if __name__ == "__main__":
    main()
