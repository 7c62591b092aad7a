"""The package is a house of floors: a file imports only from below it. And a few things have one home each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import anarchon

ROOT = Path(anarchon.__file__).parent

# A file may import from any floor below its own, and from what stands before it on its floor. A subpackage stands on
# one floor as a whole, and its files may import each other.
FLOORS = [
    ["errors.py", "callables.py", "durations.py", "clock.py", "threads.py", "surroundings.py", "forks.py", "chance.py"],
    ["records.py", "alarms.py", "sources.py", "options.py", "events.py", "schedules/"],
    ["context.py", "job.py", "backends/"],
    ["store_clock.py", "store.py", "heartbeat.py", "executor.py"],
    ["runners/"],
    ["timers.py"],
    ["process.py", "engine.py", "scheduler.py"],
    ["web/", "__init__.py", "testing/", "tables.py", "targets.py", "output.py", "demo/", "commands.py"],
    ["contrib/", "cli.py", "__main__.py"],
]

ORDER = {entry: (floor, place) for floor, entries in enumerate(FLOORS) for place, entry in enumerate(entries)}

# The manual one is the other clock: what a test hands in where clock.py serves otherwise.
CLOCKS = {"clock.py", "testing/manual_clock.py"}

FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def entry_of(file: str) -> str:
    """The line of the table that a file stands on: its own, or its subpackage's."""
    folders = [f"{parent.as_posix()}/" for parent in Path(file).parents]
    return next((entry for entry in [file, *folders] if entry in ORDER), file)


BELOW_SCHEDULER = [file for file in FILES if ORDER.get(entry_of(file), (0, 0))[0] < ORDER["scheduler.py"][0]]


@pytest.mark.parametrize("file", FILES)
def test_every_file_imports_only_from_below(file: str) -> None:
    assert list(climbs(file, source_of(file))) == []


@pytest.mark.parametrize("file", FILES)
def test_clocks_threads_and_chance_have_one_source_each(file: str) -> None:
    assert list(strays(file, source_of(file))) == []


@pytest.mark.parametrize("file", BELOW_SCHEDULER)
def test_nothing_below_the_scheduler_names_it(file: str) -> None:
    assert [word for word in identifiers(source_of(file)) if "scheduler" in word.lower()] == []


def test_the_table_has_every_file_and_no_other() -> None:
    assert sorted(ORDER) == sorted({entry_of(file) for file in FILES})


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("options.py", "import anarchon.scheduler"),
        ("options.py", "from anarchon import timers"),
        ("options.py", "from anarchon.events import Events"),
        ("options.py", "from . import events"),
        ("options.py", "def later():\n    from anarchon.job import Job"),
        ("backends/memory.py", "from ..scheduler import Scheduler"),
        ("context.py", "if TYPE_CHECKING:\n    from anarchon.scheduler import Scheduler"),
        ("job.py", "from anarchon import Scheduler"),
    ],
)
def test_an_import_from_above_is_found(file: str, source: str) -> None:
    assert list(climbs(file, source))


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import sleep",
        "datetime.now(timezone.utc)",
        "datetime.datetime.utcnow()",
        "date.today()",
        "event.wait(1)",
        "self._stopped.wait(1)",
        "condition.wait_for(check)",
        "lock.acquire(timeout=1)",
        "thread.join(timeout=1)",
        "threading.Event()",
        "threading.Condition()",
        "from threading import Event",
        "threading.Thread(target=work)",
        "threading.Timer(1, work)",
        "_thread.start_new_thread(work, ())",
        "import concurrent.futures",
        "import multiprocessing",
        "import queue",
        "import random",
        "from uuid import uuid4",
        "import secrets",
        "os.urandom(16)",
    ],
)
def test_a_clock_a_thread_or_chance_out_of_place_is_found(source: str) -> None:
    assert list(strays("scheduler.py", source))


def source_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def climbs(file: str, source: str) -> Iterator[str]:
    """The imports of a file that do not come from below it."""
    for node, for_types in imports(ast.parse(source), for_types=False):
        for target in targets(file, node):
            if not below(file, target, for_types):
                yield f"{file}:{node.lineno} imports {target}"


def below(file: str, target: str, for_types: bool) -> bool:
    here, there = entry_of(file), entry_of(target)
    if here == there:
        return here.endswith("/")
    if for_types:
        # An annotation makes no dependency at run time; on its own floor a file may name what it is handed.
        return ORDER[there][0] <= ORDER[here][0]
    return ORDER[there] < ORDER[here]


def imports(node: ast.AST, for_types: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, for_types
        guarded = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
        yield from imports(child, for_types or guarded)


def targets(file: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The files of this package that an import statement reaches."""
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    else:
        above = ["anarchon", *Path(file).parts][: -node.level] if node.level else []
        base = ".".join([*above, node.module] if node.module else above)
        # What is imported from a package may be a module in it, or a name of its __init__.
        modules = [f"{base}.{alias.name}" if file_of(f"{base}.{alias.name}") else base for alias in node.names]
    for module in modules:
        if module.split(".")[0] == "anarchon":
            target = file_of(module)
            assert target is not None, f"{file}:{node.lineno}: no file for {module}"
            yield target


def file_of(module: str) -> str | None:
    path = "/".join(module.split(".")[1:])
    candidates = [f"{path}.py", f"{path}/__init__.py"] if path else ["__init__.py"]
    return next((candidate for candidate in candidates if candidate in ORDER or candidate in FILES), None)


def strays(file: str, source: str) -> Iterator[str]:
    """Where a file reads a clock, waits, starts a thread or draws by chance though that is another's part."""
    for node in ast.walk(ast.parse(source)):
        for what, homes in found(node):
            if file not in homes:
                yield f"{file}:{getattr(node, 'lineno', 0)} {what}"


CHANCE = {"chance.py"}
THREADS = {"threads.py"}
MODULES = {
    "time": CLOCKS,
    "sched": CLOCKS,
    "select": CLOCKS,
    "asyncio": CLOCKS,
    "queue": CLOCKS,
    "concurrent": THREADS,
    "multiprocessing": THREADS,
    "_thread": THREADS,
    "random": CHANCE,
    "secrets": CHANCE,
    "uuid": CHANCE,
}
# Locks and semaphores are not among them: they are held for one step, and nobody waits for time to pass on one.
CALLS = {
    "Event": CLOCKS,
    "Condition": CLOCKS,
    "Barrier": CLOCKS,
    "wait_for": CLOCKS,
    "utcnow": CLOCKS,
    "today": CLOCKS,
    "now": CLOCKS,
    "Thread": THREADS,
    "Timer": THREADS,
    "start_new_thread": THREADS,
    "urandom": CHANCE,
}


def found(node: ast.AST) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] in MODULES:
                yield f"imports {alias.name}", MODULES[alias.name.split(".")[0]]
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        if node.module.split(".")[0] in MODULES:
            yield f"imports from {node.module}", MODULES[node.module.split(".")[0]]
        for alias in node.names:
            if node.module == "threading" and alias.name in CALLS:
                yield f"imports threading.{alias.name}", CALLS[alias.name]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        receiver, called = ast.unparse(node.func.value), node.func.attr
        # Event is also a record of ours; the one that is waited for is always written with its module.
        if called in CALLS and (called not in ("Event", "Timer") or receiver == "threading"):
            yield f"calls {receiver}.{called}", CALLS[called]
        if called == "wait" and not receiver.lower().endswith("clock"):
            yield f"waits on {receiver} and not on the clock", CLOCKS
        if called in ("acquire", "join", "get", "put", "result") and "timeout" in {word.arg for word in node.keywords}:
            yield f"waits in {receiver}.{called}", CLOCKS


def identifiers(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        for name in ("id", "attr", "arg", "name", "module"):
            word = getattr(node, name, None)
            if isinstance(word, str):
                yield word
