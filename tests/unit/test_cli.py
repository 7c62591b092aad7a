"""The command line, called in this process: what it prints, what it refuses, and its exit codes."""

from __future__ import annotations

import gc
import importlib
import io
import itertools
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import anarchon
from anarchon import cli
from anarchon.cli import main
from anarchon.records import MANUAL_WINDOW_MS, ClaimRequest, Mode
from anarchon.targets import UsageError, load_scheduler

JOBS = """
    from anarchon import MemoryBackend, Scheduler

    backend = MemoryBackend()
    scheduler = Scheduler(backend, timezone="Europe/Athens", instance_id="here")

    @scheduler.every("sync", "10s")
    def sync(ctx):
        print("in sync")

    @scheduler.cron("digest", "0 8 * * 1-5", timeout="10m")
    def digest():
        raise ValueError("no one to write to")
"""

Module = Callable[[str], str]


class Terminal(io.StringIO):
    """A person at the keyboard."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command changes in its process, which ends after it, is as it was before the next test."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    modules, level = set(sys.modules), logging.getLogger("anarchon").level
    yield
    logging.getLogger("anarchon").setLevel(level)
    for name in [name for name in sys.modules if name.startswith("jobs_of_test") and name not in modules]:
        del sys.modules[name]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """Writes a module into the current directory, which is nowhere on the path; returns its name."""
    monkeypatch.chdir(tmp_path)
    names = (f"jobs_of_test_{number}" for number in itertools.count())

    def write(source: str) -> str:
        name = next(names)
        (tmp_path / f"{name}.py").write_text(dedent(source), encoding="utf-8")
        importlib.invalidate_caches()
        return name

    return write


@pytest.fixture
def target(module: Module) -> str:
    return f"{module(JOBS)}:scheduler"


def hold(target: str, job: str) -> None:
    """Another instance runs the job."""
    backend = load_scheduler(target)._backend
    assert isinstance(backend, anarchon.MemoryBackend)
    backend.claim(
        ClaimRequest(
            job, backend.time(job), "manual-1", "token", "elsewhere", 30_000, "skip", 3, MANUAL_WINDOW_MS, Mode.START,
            "manual", 200,
        )
    )  # fmt: skip


def module_of(target: str) -> str:
    return target.partition(":")[0]


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


# -- targets


def test_a_scheduler_is_found_in_the_current_directory(target: str) -> None:
    assert load_scheduler(target).instance_id == "here"


def test_a_function_that_makes_a_scheduler_is_called(module: Module) -> None:
    name = module("from anarchon import Scheduler\ndef make(): return Scheduler('memory://', instance_id='made')")
    assert load_scheduler(f"{name}:make").instance_id == "made"


def test_a_scheduler_inside_another_object_is_found(module: Module) -> None:
    name = module("from anarchon import Scheduler\nclass app: cron = Scheduler('memory://', instance_id='inside')")
    assert load_scheduler(f"{name}:app.cron").instance_id == "inside"


def test_a_function_that_makes_a_scheduler_may_stand_beside_one(module: Module) -> None:
    name = module(JOBS + "\n    def make(): return Scheduler(backend, instance_id='made')")
    assert load_scheduler(f"{name}:make").instance_id == "made"


def test_a_scheduler_in_a_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs_of_test_package").mkdir()
    (tmp_path / "jobs_of_test_package" / "jobs.py").write_text(dedent(JOBS))
    monkeypatch.chdir(tmp_path)
    assert load_scheduler("jobs_of_test_package.jobs:scheduler").instance_id == "here"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected package.module:scheduler, not ''."),
        ("jobs", "Expected package.module:scheduler, not 'jobs'. Did you mean jobs:scheduler?"),
        ("jobs:", "Expected package.module:scheduler, not 'jobs:'. Did you mean jobs:scheduler?"),
        ("jobs.py:s", "Expected package.module:scheduler, not 'jobs.py:s'. Did you mean jobs:s?"),
        ("./a/jobs.py:s", "Expected package.module:scheduler, not './a/jobs.py:s'. Did you mean a.jobs:s?"),
        (":s", "Expected package.module:scheduler, not ':s'. Did you mean package.module:s?"),
        ("redis://localhost", "A store's URL has no jobs to run: expected package.module:scheduler."),
    ],
)
def test_a_text_that_is_no_target_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_scheduler(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("missing", ["jobs_of_nobody", "anarchon.nothing", "anarchon.errors.nothing"])
def test_a_module_that_is_not_there_is_named_without_a_traceback(
    missing: str, module: Module, capsys: pytest.CaptureFixture[str]
) -> None:
    module("")
    assert main(["jobs", f"{missing}:scheduler"]) == 2
    said = complaint(capsys)
    assert said.startswith(f"anarchon: There is no module {missing!r} (looked in ")
    assert said.count("\n") == 1


def test_a_module_that_cannot_import_another_shows_where(module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    name = module("import anarchon\nimport jobs_of_nobody")
    assert main(["jobs", f"{name}:scheduler"]) == 2
    *trace, last = complaint(capsys).splitlines()
    assert f'{name}.py", line 2' in "\n".join(trace)
    assert "targets.py" not in "\n".join(trace)
    assert last == f"anarchon: Importing {name} failed: ModuleNotFoundError: No module named 'jobs_of_nobody'"


def test_a_module_with_a_fault_in_its_text_shows_where(module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    name = module("def :")
    assert main(["jobs", f"{name}:scheduler"]) == 2
    assert f'{name}.py", line 1' in complaint(capsys)


def test_a_name_that_is_not_there_is_answered_with_the_nearest(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = module_of(target)
    assert main(["jobs", f"{name}:schedular"]) == 2
    assert complaint(capsys) == f"anarchon: {name} has no 'schedular'. Did you mean 'scheduler'?\n"


def test_a_name_that_is_like_none_is_answered_with_the_scheduler(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module_of(target)
    assert main(["jobs", f"{name}:zzz"]) == 2
    assert complaint(capsys) == f"anarchon: {name} has no 'zzz'. Did you mean {target}?\n"


def test_a_value_that_is_no_scheduler_is_named_by_its_type(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = module_of(target)
    assert main(["jobs", f"{name}:backend"]) == 2
    assert complaint(capsys) == (
        f"anarchon: {name}:backend is an object of type MemoryBackend, not a Scheduler. Did you mean {target}?\n"
    )


def test_a_jobs_handler_is_not_taken_for_a_function_that_makes_a_scheduler(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module_of(target)
    assert main(["jobs", f"{name}:digest"]) == 2
    assert complaint(capsys) == (
        f"anarchon: {name}:digest is an object of type function, not a Scheduler. Did you mean {target}?\n"
    )


def test_a_function_that_returns_something_else_is_refused(module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    name = module("def make(): pass")
    assert main(["jobs", f"{name}:make"]) == 2
    assert complaint(capsys) == f"anarchon: {name}:make() returned None, not a Scheduler.\n"


def test_a_function_that_raises_shows_where(module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    name = module("def make():\n    raise OSError('no such zone')")
    assert main(["jobs", f"{name}:make"]) == 2
    said = complaint(capsys)
    assert f'{name}.py", line 2, in make' in said
    assert said.endswith(f"anarchon: {name}:make() failed: OSError: no such zone\n")


def test_a_function_that_cannot_be_called_shows_no_traceback_of_ours(
    module: Module, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module("def make(app): pass")
    assert main(["jobs", f"{name}:make"]) == 2
    said = complaint(capsys)
    assert said.startswith(f"anarchon: {name}:make() failed: TypeError: make() missing 1 required")
    assert said.count("\n") == 1


@pytest.mark.parametrize("code", ["", "0", "7", "'over'"])
def test_a_module_that_ends_the_process_is_refused(
    code: str, module: Module, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module(f"import sys\nsys.exit({code})")
    assert main(["jobs", f"{name}:scheduler"]) == 2
    said = complaint(capsys)
    assert f'{name}.py", line 2' in said
    assert said.endswith(f"anarchon: Importing {name} called sys.exit({code or None}).\n")


def test_sys_exit_is_no_target(module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    module("")
    assert main(["jobs", "sys:exit"]) == 2
    assert complaint(capsys) == "anarchon: sys:exit() called sys.exit(None).\n"


@pytest.mark.parametrize(("error", "code"), [("SystemExit(0)", 2), ("GeneratorExit", 2), ("KeyboardInterrupt", 130)])
def test_whatever_a_function_raises_is_no_success(error: str, code: int, module: Module) -> None:
    name = module(f"def make(): raise {error}")
    assert main(["jobs", f"{name}:make"]) == code


@pytest.mark.filterwarnings("error")
def test_a_coroutine_function_is_refused(module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    name = module("async def make(): pass")
    assert main(["jobs", f"{name}:make"]) == 2
    gc.collect()
    assert complaint(capsys) == (
        f"anarchon: {name}:make() returned a coroutine, which nobody awaits: expected def, not async def.\n"
    )


def test_a_function_that_returns_something_else_names_its_type(
    module: Module, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module("class App: pass\ndef make(): return App()")
    assert main(["jobs", f"{name}:make"]) == 2
    assert complaint(capsys) == f"anarchon: {name}:make() returned an object of type App, not a Scheduler.\n"


HOSTILE = """
    class Mute(Exception):
        def __str__(self): raise ValueError

    class StandIn:
        @property
        def __class__(self): raise RuntimeError("nothing stands behind this")

    stand_in = StandIn()

    class Unlisted:
        def __dir__(self): raise RuntimeError("not to be listed")

    unlisted = Unlisted()

    def make(): raise Mute

    def __getattr__(name):
        if name == "mute":
            raise Mute
        if name == "broken":
            raise RuntimeError("no settings")
        raise AttributeError(name)
"""


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("make", "{0}:make() failed: Mute: (its text could not be had: ValueError)"),
        ("mute", "Looking up 'mute' in {0} failed: Mute: (its text could not be had: ValueError)"),
        ("broken", "Looking up 'broken' in {0} failed: RuntimeError: no settings"),
        ("stand_in", "{0}:stand_in is an object of type StandIn, not a Scheduler."),
        ("unlisted.scheduler", "Unlisted has no 'scheduler'."),
        ("missing", "{0} has no 'missing'."),
    ],
)
def test_objects_that_raise_when_they_are_looked_at_show_no_traceback_of_ours(
    attribute: str, said: str, module: Module, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module(HOSTILE)
    assert main(["jobs", f"{name}:{attribute}"]) == 2
    *trace, last = complaint(capsys).splitlines()
    assert last == f"anarchon: {said.format(name)}"
    assert "targets.py" not in "\n".join(trace)


# -- run


def test_a_run_that_succeeds_prints_its_record(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", target, "sync"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "in sync"
    assert lines[1] == "job       sync"
    assert "status    success" in lines
    assert "instance  here" in lines


def test_a_run_that_fails_prints_its_record_and_a_traceback(
    target: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["run", target, "digest"]) == 1
    out = capsys.readouterr().out
    assert "status    failed" in out
    assert "error     ValueError: no one to write to" in out
    (told,) = caplog.records
    assert told.exc_info is not None
    assert told.exc_info[0] is ValueError


def test_a_run_as_json_is_one_object(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", target, "digest", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["job"], record["status"], record["trigger"]) == ("digest", "failed", "manual")
    assert record["slot"].endswith("Z")


def test_a_run_as_json_leaves_standard_output_to_the_record(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", target, "sync", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["status"] == "success"
    assert captured.err == "in sync\n"


def test_a_run_of_a_job_that_is_not_registered_names_the_nearest(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", target, "snyc"]) == 6
    assert complaint(capsys) == (
        "anarchon: No job named 'snyc' is registered on this scheduler. Did you mean 'sync'?\n"
    )


def test_a_run_that_is_refused_names_the_holder(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    hold(target, "sync")
    assert main(["run", target, "sync"]) == 4
    assert complaint(capsys) == (
        "anarchon: Job 'sync' is already running on 'elsewhere', and its overlap rule is 'skip'.\n"
    )


def test_a_run_interrupted_by_a_stop_elsewhere_has_its_own_code(module: Module) -> None:
    name = module(
        """
        from anarchon import Scheduler
        scheduler = Scheduler("memory://")

        @scheduler.every("sync", "10s")
        def sync(ctx):
            scheduler.stop("0s")
            ctx.raise_if_cancelled()
        """
    )
    assert main(["run", f"{name}:scheduler", "sync"]) == 3


def test_ctrl_c_interrupts_the_run_and_is_recorded(module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    name = module(
        """
        import signal, threading
        from anarchon import Scheduler
        scheduler = Scheduler("memory://")

        @scheduler.every("sync", "10s")
        def sync(ctx):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            assert ctx.signal.wait(30)
            ctx.raise_if_cancelled()
        """
    )
    assert main(["run", f"{name}:scheduler", "sync"]) == 130
    assert complaint(capsys) == ("anarchon: sync was told to stop, and is recorded as interrupted if it heeded that.\n")
    (record,) = load_scheduler(f"{name}:scheduler").history("sync")
    assert (record.status, record.error) == ("interrupted", "RunInterrupted: The run was told to stop: stop.")


# -- jobs, history, active


def test_jobs_are_listed_in_a_table(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", target]) == 0
    header, sync, digest = capsys.readouterr().out.splitlines()
    assert header.startswith("JOB     SCHEDULE          NEXT RUN")
    assert sync.startswith("sync    every 10s")
    assert digest.startswith("digest  cron 0 8 * * 1-5")


def test_jobs_as_json_are_one_array(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", target, "--json"]) == 0
    sync, digest = json.loads(capsys.readouterr().out)
    assert (sync["name"], sync["kind"], sync["timezone"]) == ("sync", "every", "Europe/Athens")
    assert digest["options"]["timeout"] == 600


def test_a_scheduler_without_jobs_has_an_empty_list(module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    name = module("from anarchon import Scheduler\nscheduler = Scheduler('memory://')")
    assert main(["jobs", f"{name}:scheduler"]) == 0
    assert complaint(capsys) == f"{name}:scheduler has no jobs.\n"
    assert main(["jobs", f"{name}:scheduler", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_history_is_newest_first_and_cut_to_the_limit(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    scheduler = load_scheduler(target)
    records = [scheduler.run_now("sync") for _ in range(3)]
    capsys.readouterr()
    assert main(["history", target, "sync", "--limit", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [str(record.fence) in line for record, line in zip(records[:0:-1], lines[1:])] == [True, True]
    assert main(["history", target, "sync", "--limit", "2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == [record.to_dict() for record in records[:0:-1]]


def test_a_history_of_a_job_that_is_not_registered_is_shown(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = anarchon.Scheduler(load_scheduler(target)._backend).every("gone", "10s", lambda: None)
    other.run_now("gone")
    assert main(["history", target, "gone"]) == 0
    assert "success" in capsys.readouterr().out
    assert main(["run", target, "gone"]) == 6


def test_an_empty_history_says_where_it_looked_and_what_may_be_meant(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", target, "snyc"]) == 0
    assert complaint(capsys) == "Nothing is recorded of 'snyc' in <MemoryBackend>. Did you mean 'sync'?\n"
    assert main(["history", target, "sync"]) == 0
    assert complaint(capsys) == "Nothing is recorded of 'sync' in <MemoryBackend>.\n"
    assert main(["history", target, "sync", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_what_is_running_is_shown(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["active", target, "sync"]) == 0
    assert complaint(capsys) == "No run of 'sync' is unfinished in <MemoryBackend>.\n"
    hold(target, "sync")
    assert main(["active", target, "sync"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split()[-3:] == ["LEFT", "INSTANCE", "FENCE"]
    assert " elsewhere " in line
    assert main(["active", target, "sync", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["instance_id"], run["attempt"]) == ("elsewhere", 1)
    assert 0 < run["lease_left"] <= 30


def test_an_error_is_cut_to_the_screen_of_a_terminal(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_scheduler(target).run_now("digest")
    monkeypatch.setenv("COLUMNS", "150")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(["history", target, "digest"]) == 0
    assert "ValueError: no one" in screen.getvalue()
    assert max(map(len, screen.getvalue().splitlines())) <= 150


# -- a store's URL in place of a target


def test_a_history_is_read_by_url_without_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    scheduler = anarchon.Scheduler(url).every("sync", "10s", lambda: None)
    record = scheduler.run_now("sync")
    scheduler.stop()
    assert main(["history", url, "sync", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [record.to_dict()]
    assert main(["history", url, "sync"]) == 0
    assert " UTC " in capsys.readouterr().out


def test_reading_by_url_makes_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", f"sqlite:///{tmp_path}/typo.db", "sync"]) == 0
    assert f"{tmp_path}/typo.db" in complaint(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "jobs", "worker"])
def test_a_command_that_needs_jobs_refuses_a_url(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "memory://", *(["sync"] if command == "run" else [])]) == 2
    assert complaint(capsys) == ("anarchon: A store's URL has no jobs to run: expected package.module:scheduler.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["history", "memory://", "sync", "--prefix", "p:"], "prefix is for Redis"),
        (["history", "jobs:scheduler", "sync", "--prefix", "p:"], "--prefix goes with the URL of a store"),
        (["history", "mysql://localhost", "sync"], "Unknown scheme 'mysql'"),
        (["history", "memory://", "two words"], "must not have white space"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in complaint(capsys)


def test_a_store_that_cannot_be_reached_says_where_and_keeps_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    # Port 1 is nobody's.
    assert main(["history", "redis://user:secret@127.0.0.1:1/0", "sync"]) == 5
    said = complaint(capsys)
    assert "127.0.0.1:1" in said
    assert "secret" not in said
    assert said.count("\n") == 1


# -- forget


def test_a_job_that_is_registered_is_not_forgotten(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    load_scheduler(target).run_now("sync")
    capsys.readouterr()
    for yes in ([], ["--yes"]):
        assert main(["forget", target, "sync", *yes]) == 2
        assert "Job 'sync' is registered" in complaint(capsys)
    assert load_scheduler(target).last_run("sync") is not None


def test_a_job_is_forgotten_where_the_answer_is_yes(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(target, "gone")
    backend = load_scheduler(target)._backend
    monkeypatch.setattr(sys, "stdin", Terminal("no\n"))
    assert main(["forget", target, "gone"]) == 1
    assert "It is running on elsewhere right now. [y/N]" in complaint(capsys)
    assert anarchon.Scheduler(backend).active("gone")
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert main(["forget", target, "gone"]) == 0
    assert complaint(capsys).endswith("[y/N] All that the store kept of 'gone' is removed.\n")
    assert not anarchon.Scheduler(backend).active("gone")


def test_no_answer_is_no(target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    hold(target, "gone")
    # Ctrl-D.
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    assert main(["forget", target, "gone"]) == 1
    assert anarchon.Scheduler(load_scheduler(target)._backend).active("gone")


def test_a_job_is_not_forgotten_where_there_is_nobody_to_ask(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(target, "gone")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(["forget", target, "gone"]) == 2
    assert complaint(capsys) == "anarchon: There is nobody to ask whether 'gone' shall be forgotten: say --yes.\n"
    assert load_scheduler(target).active("gone")
    assert main(["forget", target, "gone", "--yes"]) == 0
    assert not load_scheduler(target).active("gone")


# -- worker


def test_a_worker_without_jobs_is_refused(module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    name = module("from anarchon import Scheduler\nscheduler = Scheduler('memory://')")
    assert main(["worker", f"{name}:scheduler"]) == 2
    assert complaint(capsys) == (
        f"anarchon: {name}:scheduler has no jobs, and a worker without jobs has nothing to do.\n"
    )


@pytest.mark.parametrize(("heeds", "stop_timeout"), [(True, "60s"), (False, "50ms")])
def test_a_worker_ends_with_what_came_of_its_stop(
    heeds: bool, stop_timeout: str, module: Module, caplog: pytest.LogCaptureFixture
) -> None:
    name = module(
        f"""
        import threading
        from anarchon import Scheduler
        scheduler = Scheduler("memory://", instance_id="here")
        over = threading.Event()

        @scheduler.every("sync", "20ms")
        def sync(ctx):
            threading.Thread(target=scheduler.stop, args=("0s",)).start()
            (ctx.signal if {heeds} else over).wait(30)
        """
    )
    scheduler = load_scheduler(f"{name}:scheduler")
    assert main(["worker", f"{name}:scheduler", "--stop-timeout", stop_timeout]) == (0 if heeds else 1)
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == f"here runs 1 job of {name}:scheduler until SIGTERM or SIGINT."
    assert any(" start slot=" in line for line in told)
    assert told[-1] == f"Stopped: {'every run has ended' if heeds else 'not every run ended in time'}."
    sys.modules[name].over.set()
    assert scheduler.stop()


@pytest.mark.parametrize(("verbose", "shown"), [([], False), (["--verbose"], True)])
def test_a_worker_tells_of_skipped_slots_where_it_is_verbose(
    verbose: list[str], shown: bool, module: Module, caplog: pytest.LogCaptureFixture
) -> None:
    name = module(
        """
        from anarchon import Scheduler
        scheduler = Scheduler("memory://", lease="30s", overlap="skip")

        @scheduler.every("sync", "50ms")
        def sync(ctx):
            ctx.signal.wait(30)

        @scheduler.on("skip")
        def skipped(event):
            # A machine that is busy may be late for a slot before that.
            if event.reason == "overlap":
                scheduler.stop("0s")
        """
    )
    with caplog.at_level(logging.NOTSET):
        logging.getLogger("anarchon").setLevel(logging.NOTSET)
        logging.getLogger().setLevel(logging.WARNING)
        assert main(["worker", f"{name}:scheduler", *verbose]) == 0
    told = [record.getMessage() for record in caplog.records if record.name == "anarchon"]
    assert any("sync skip (overlap)" in line for line in told) == shown


def test_a_scheduler_that_logs_by_itself_is_left_to_it(module: Module, caplog: pytest.LogCaptureFixture) -> None:
    name = module(
        """
        import logging
        from anarchon import Scheduler
        scheduler = Scheduler("memory://", log=logging.getLogger("jobs.of.mine"))

        @scheduler.every("sync", "50ms")
        def sync(ctx):
            scheduler.stop("0s")
        """
    )
    assert main(["worker", f"{name}:scheduler"]) == 0
    starts = [record.name for record in caplog.records if " start slot=" in record.getMessage()]
    logging.getLogger("jobs.of.mine").setLevel(logging.NOTSET)
    assert set(starts) == {"jobs.of.mine"}


# -- the frame


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["wroker"],
        ["run", "jobs:scheduler"],
        ["worker", "jobs:scheduler", "--stop-timeout", "25"],
        ["worker", "jobs:scheduler", "--stop-timeout", "soon"],
        ["history", "jobs:scheduler", "sync", "--limit", "0"],
        ["history", "jobs:scheduler", "sync", "--limit", "many"],
        ["history", "jobs:scheduler", "sync", "--limit", "1000001"],
        ["history", "jobs:scheduler", "sync", "--limit", "9" * 5000],
        ["history", "jobs:scheduler", "sync", "--limit", "\N{ARABIC-INDIC DIGIT TWO}"],
        ["jobs", "jobs:scheduler", "--xml"],
    ],
)
def test_wrong_arguments_are_argparses_to_refuse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert complaint(capsys).startswith("usage: anarchon")


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"anarchon {anarchon.__version__}\n"


@pytest.mark.parametrize(("good", "code"), [(True, 0), (False, 1)])
def test_the_demo_ends_with_its_judgement(good: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.demo, "play", lambda tell: good)
    assert main(["demo"]) == code


def test_ctrl_c_ends_any_command_in_silence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(tell: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.demo, "play", interrupted)
    assert main(["demo"]) == 130
    assert complaint(capsys) == ""


def test_no_command_leaves_a_thread(target: str) -> None:
    before = set(threading.enumerate())
    main(["run", target, "sync"])
    main(["history", target, "sync"])
    for thread in set(threading.enumerate()) - before:
        thread.join(60)  # a command waits a few seconds for its threads to end; a busy machine may need more
    assert set(threading.enumerate()) <= before
