"""A process whose threads are none: it is refused where they would never run, and warned of where they are green."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from anarchon import MemoryBackend, Scheduler


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(MemoryBackend()).every("x", "1h", lambda: None)


def test_in_a_uwsgi_without_threads_a_start_is_refused_and_nothing_is_begun(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    uwsgi = SimpleNamespace(has_threads=0)
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi)  # type: ignore[arg-type]
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="uWSGI runs no threads here, .* set enable-threads = true"):
        scheduler.start()
    assert set(threading.enumerate()) <= before  # one that another test left may be gone by now
    uwsgi.has_threads = 1
    assert scheduler.start().stop() is True


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("gevent.monkey", SimpleNamespace(is_module_patched=lambda name: name == "threading")),
        ("eventlet.patcher", SimpleNamespace(is_monkey_patched=lambda name: name == "thread")),
    ],
)
def test_green_threads_are_warned_of_at_each_start(
    scheduler: Scheduler,
    name: str,
    module: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    for _ in range(2):
        scheduler.start().start().stop()
    library = name.partition(".")[0]
    told = [(record.levelno, record.getMessage()) for record in caplog.records if "green" in record.getMessage()]
    assert [level for level, _ in told] == [logging.WARNING] * 2
    assert all(message.startswith(f"{library} has put green threads in the place") for _, message in told)


def test_real_threads_are_not_spoken_of_though_the_library_is_there(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unpatched = SimpleNamespace(is_module_patched=lambda name: False)
    monkeypatch.setitem(sys.modules, "gevent.monkey", unpatched)  # type: ignore[arg-type]
    scheduler.start().stop()
    assert "green" not in caplog.text


def test_a_gevent_that_has_patched_is_recognised_and_one_that_has_not_is_not() -> None:
    pytest.importorskip("gevent")
    ask = "from anarchon.surroundings import _green_library; print(_green_library(), end=' ')"
    script = f"import gevent.monkey; {ask}; gevent.monkey.patch_all(); {ask}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "None gevent "
