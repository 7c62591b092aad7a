"""``python -m anarchon`` is ``anarchon``."""

from __future__ import annotations

from anarchon.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
