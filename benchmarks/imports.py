"""How long ``import anarchon`` takes over bare Python, beside other schedulers and task queues.

    python benchmarks/imports.py [--json] [--rounds 20]

In each round every side has one fresh interpreter that imports it and ends, and beside it one of the same environment
that imports nothing; what counts is the difference of the two, of which the median over the rounds is told. Ours has an
empty environment too, with this tree and its libraries on its path. All are compiled before, as pip does when it
installs. ``modules`` is how many are loaded by it.

Neither redis nor croniter may be loaded by ``import anarchon`` alone; it is an error if one is.
"""

from __future__ import annotations

import argparse
import compileall
import subprocess
import sysconfig
import tempfile
import time
import venv
from statistics import median

from harness import ROOT, Row, show
from peers import python_of

#: For an environment that is empty.
PATH = f"import sys; sys.path[:0] = {[str(ROOT), sysconfig.get_path('purelib')]}; "

#: What each side's user imports first.
STATEMENTS = {
    "anarchon": f"{PATH}import anarchon",
    "anarchon, a cron text": f"{PATH}import anarchon; anarchon.Scheduler('memory://').cron('a', '@daily', print)",
    "anarchon, that and Redis": f"{PATH}import anarchon; anarchon.Scheduler('redis://').cron('a', '@daily', print)",
    "apscheduler3": "from apscheduler.schedulers.background import BackgroundScheduler",
    "celery": "from celery import Celery; Celery",
    "huey": "from huey import RedisHuey",
    "rq": "from rq import Queue",
    "dramatiq": "import dramatiq.brokers.redis",
}

#: What is loaded when it is used, and not before.
LATER = ("redis", "croniter")


def measure(arguments: argparse.Namespace) -> list[Row]:
    compileall.compile_dir(ROOT / "anarchon", quiet=1)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        venv.create(folder)
        own = f"{folder}/bin/python"
        check_nothing_is_loaded_too_early(own)
        pythons = {name: own if name.startswith("anarchon") else python_of(name) for name in STATEMENTS}
        there = {name: python for name, python in pythons.items() if python is not None}
        loaded = {name: modules(python, STATEMENTS[name]) - modules(python, "") for name, python in there.items()}
        rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in there}
        for _ in range(arguments.rounds):
            for name, python in there.items():
                rounds[name].append((timed(python, STATEMENTS[name]), timed(python, "")))
    return [
        row(name, rounds[name], loaded[name]) if name in there else {"import": f"{name} is missing"}
        for name in STATEMENTS
    ]


def run(python: str, statement: str) -> str:
    # Nothing that lies in that folder is taken for a module.
    return subprocess.run([python, "-c", statement], cwd="/", stdout=subprocess.PIPE, check=True, text=True).stdout


def timed(python: str, statement: str) -> float:
    begun = time.perf_counter()
    run(python, statement)
    return (time.perf_counter() - begun) * 1000


def modules(python: str, statement: str) -> int:
    return int(run(python, f"{statement}\nimport sys; print(len(sys.modules))"))


def check_nothing_is_loaded_too_early(python: str) -> None:
    early = run(python, f"{PATH}import anarchon; print(*(name for name in {LATER} if name in sys.modules))").split()
    if early:
        raise SystemExit(f"import anarchon loads {' and '.join(early)} before it is used.")


def row(name: str, rounds: list[tuple[float, float]], loaded: int) -> Row:
    over = [with_it - bare for with_it, bare in rounds]
    return {
        "import": name,
        "over bare Python, ms": median(over),
        "bare Python, ms": median(bare for _, bare in rounds),
        "of bare Python": median(with_it / bare for with_it, bare in rounds),
        "modules": loaded,
        "rounds": rounds,
    }


if __name__ == "__main__":
    show(__doc__, measure, rounds={"type": int, "default": 20, "help": "how often each is imported"})
