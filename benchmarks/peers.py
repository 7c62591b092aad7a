"""The other schedulers that are measured beside this one, each in an environment of its own.

    python benchmarks/peers.py [NAME ...]

installs them from PyPI into ``benchmarks/.peers/<name>``; without a name, all of them. A benchmark says of one that is
not installed that it is missing, and measures the others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["PEERS", "python_of"]

_FOLDER = Path(__file__).resolve().parent / ".peers"

#: What pip installs for each. The versions are those that the figures in the docs were measured with.
PEERS = {
    "apscheduler3": ["apscheduler==3.11.3", "redis==8.1.0"],
    "apscheduler4": ["apscheduler==4.0.0a6"],
    "schedule": ["schedule==1.2.2"],
    "huey": ["huey==3.5.4", "redis==8.1.0"],
    "celery": ["celery[redis]==5.7.0", "kombu==5.7.0", "packaging==26.3", "celery-redbeat==2.4.2", "redis==8.1.0"],
    "rq": ["rq==3.0.0", "redis==8.1.0"],
    "dramatiq": ["dramatiq[redis]==2.2.1", "redis==8.1.0"],
}


def python_of(name: str) -> str | None:
    """The interpreter that has this peer; None: it is not installed. What is none of the peers runs on our own."""
    if name not in PEERS:
        return sys.executable
    python = _FOLDER / name / "bin" / "python"
    return str(python) if python.exists() else None


def install(name: str) -> None:
    folder = _FOLDER / name
    venv.create(folder, with_pip=True, clear=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *PEERS[name]], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PEERS))
    names = parser.parse_args().names or list(PEERS)
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"there is no {unknown[0]!r} among {', '.join(PEERS)}")
    for name in names:
        print(f"{name}: {' '.join(PEERS[name])}")
        install(name)


if __name__ == "__main__":
    main()
