"""The commands, from a shell and from a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper

from anarchon.contrib.django import scheduler

SITE = Path(__file__).parents[1] / "django_site"

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(240)

Begun = dict[str, tuple[Any, Any]]
Answers = dict[str, CompletedProcess[str]]


def called(*arguments: str, **options: Any) -> str:
    stdout = StringIO()
    call_command(*arguments, stdout=stdout, **options)
    return stdout.getvalue()


class TestFromAProgram:
    """``call_command``, in a process that has other things to do."""

    @pytest.fixture(autouse=True)
    def nothing_of_the_process_is_changed(self) -> Iterator[None]:
        before = signal.getsignal(signal.SIGTERM), scheduler._events._log
        yield
        assert (signal.getsignal(signal.SIGTERM), scheduler._events._log) == before

    def test_run_prints_the_record_on_the_given_stream(self, capfd: pytest.CaptureFixture[str]) -> None:
        told = called("anarchon_run", "look")
        assert told.splitlines()[0] == "job       look"
        assert "status    success" in told
        assert capfd.readouterr() == ("", "")

    def test_run_prints_one_json_document_on_the_given_stream(self) -> None:
        record = scheduler.last_run("print")
        told = json.loads(called("anarchon_run", "print", "--json"))
        assert told == scheduler.last_run("print").to_dict()  # type: ignore[union-attr]
        assert (told["status"], told["trigger"]) == ("success", "manual")
        assert scheduler.last_run("print") != record

    def test_the_stream_may_be_another_commands(self) -> None:
        out = StringIO()
        call_command("anarchon_run", "look", stdout=OutputWrapper(out))
        call_command("anarchon_jobs", stdout=OutputWrapper(out))
        assert "\n\n" not in out.getvalue()
        assert out.getvalue().endswith("\n")

    def test_jobs_history_and_active_print_what_is_known(self) -> None:
        call_command("anarchon_run", "look", stdout=StringIO())
        assert [line.split()[0] for line in called("anarchon_jobs").splitlines()[1:3]] == ["tick", "read"]
        assert [job["name"] for job in json.loads(called("anarchon_jobs", json=True))][:2] == ["tick", "read"]
        history = called("anarchon_history", "look", limit=1)
        assert [line.split()[4:6] for line in history.splitlines()[1:]] == [["manual", "success"]]
        assert json.loads(called("anarchon_history", "look", "--json"))[0]["status"] == "success"
        assert json.loads(called("anarchon_active", "look", "--json")) == []

    @pytest.mark.parametrize(
        ("command", "said", "code"),
        [
            (("anarchon_run", "fail"), "The run of 'fail' failed.", 1),
            (("anarchon_run", "loook"), "No job named 'loook' .* Did you mean 'look'?", 6),
            (("anarchon_run", "a b"), "No job named 'a b'", 6),
            (("anarchon_history", "a b"), "must not have white space", 2),
            (("anarchon_history", "look", "--limit", "0"), "limit must be a whole number from 1", 2),
            (("anarchon_forget", "look", "--yes"), "Job 'look' is registered", 2),
            (("anarchon_worker", "--stop-timeout", "soon"), "--stop-timeout must be a duration", 2),
        ],
    )
    def test_what_is_no_success_is_an_error_with_the_exit_code(
        self, command: tuple[str, ...], said: str, code: int
    ) -> None:
        with pytest.raises(CommandError, match=said) as told:
            called(*command)
        assert told.value.returncode == code

    def test_a_run_that_fails_is_printed_before_it_is_an_error(self) -> None:
        stdout = StringIO()
        with pytest.raises(CommandError):
            call_command("anarchon_run", "fail", "--json", stdout=stdout)
        assert json.loads(stdout.getvalue())["error"] == "ValueError: no such customer"

    def test_a_run_may_be_called_for_on_any_thread(self) -> None:
        told: list[str] = []
        caller = threading.Thread(target=lambda: told.append(called("anarchon_run", "look")))
        caller.start()
        caller.join()
        assert "success" in told[0]

    def test_a_scheduler_that_is_at_work_goes_on(self) -> None:
        with scheduler:
            for command in (["anarchon_run", "look"], ["anarchon_jobs"], ["anarchon_history", "look"]):
                called(*command)
            engine = scheduler._engine
            assert engine is not None and engine.started and not engine.stopping

    def test_forget_removes_what_is_gone_from_the_code(self) -> None:
        called("anarchon_forget", "gone", "--yes")
        assert scheduler.history("gone") == []


# -- from a shell


#: Commands that need nothing of each other, and the settings that they are given.
ALONE: dict[str, tuple[list[str], dict[str, Any]]] = {
    "succeeds": (["anarchon_run", "look"], {}),
    "fails": (["anarchon_run", "fail"], {}),
    "misspelt": (["anarchon_run", "loook"], {}),
    "away": (["anarchon_history", "look"], {"ANARCHON": {"BACKEND": "sqlite:////no/such/folder/jobs.db"}}),
    "nameless": (["anarchon_run"], {}),
    "token": (["anarchon_worker", "--http", "127.0.0.1:0", "--token", "s3cret"], {}),
    "help": (["anarchon_worker", "--help"], {}),
    "jobless": (["anarchon_worker"], {"ANARCHON": {"BACKEND": "memory://", "JOBS_MODULE": None}}),
}


@pytest.fixture(scope="module")
def begun(site_type: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begun]:
    """Commands that go on until they are told to stop, each in a site of its own; they begin together."""
    commands = {
        "holder": ["anarchon_run", "wait"],
        "SIGINT": ["anarchon_run", "wait", "--json"],
        "SIGTERM": ["anarchon_run", "wait", "--json"],
        "worker": ["anarchon_worker", "--stop-timeout", "30s"],
        "deaf": ["anarchon_worker"],
    }
    sites = {name: site_type(tmp_path_factory.mktemp(name)) for name in commands}
    # A second each until its test comes: no record is to be cut off before.
    sites["worker"].settings["ANARCHON"]["HISTORY_LIMIT"] = 1000
    sites["deaf"].settings["ANARCHON"]["STOP_TIMEOUT"] = "1ms"
    sites["deaf"].environment["DEAF"] = "yes"
    try:
        yield {name: (site, site.start_manage(*commands[name])) for name, site in sites.items()}
    finally:
        for site in sites.values():
            site.close()


@pytest.fixture(scope="module")
def answers(begun: object, site_type: Any, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What becomes of each, two at a time."""

    def answer(name: str) -> CompletedProcess[str]:
        arguments, settings = ALONE[name]
        site = site_type(tmp_path_factory.mktemp(name), **settings)
        done: CompletedProcess[str] = site.manage(*arguments, check=False)
        return done

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(ALONE, pool.map(answer, ALONE), strict=True))


def test_run_prints_the_record_and_the_code_says_how_it_ended(answers: Answers) -> None:
    done = answers["succeeds"]
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "job       look")
    assert done.stderr == ""
    done = answers["fails"]
    assert done.returncode == 1
    assert "error     ValueError: no such customer" in done.stdout
    assert done.stderr.splitlines()[-1] == "CommandError: The run of 'fail' failed."
    done = answers["misspelt"]
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr.startswith("CommandError: No job named 'loook'")


def test_json_is_all_there_is_on_standard_output_whatever_the_handler_prints(site: Any) -> None:
    done = site.manage("anarchon_run", "print", "--json")
    record = json.loads(done.stdout)
    assert record["status"] == "success"
    assert done.stderr == "printed by the handler\n"
    assert json.loads(site.manage("anarchon_history", "print", "--json").stdout) == [record]


def test_a_store_that_is_away_is_told_in_one_line(answers: Answers) -> None:
    done = answers["away"]
    assert (done.returncode, done.stdout) == (5, "")
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["CommandError"]


def test_wrong_arguments_are_told_as_django_tells_them(answers: Answers) -> None:
    done = answers["nameless"]
    assert done.returncode == 2
    assert "the following arguments are required: NAME" in done.stderr


def test_a_token_on_the_command_line_is_refused_and_not_repeated(answers: Answers) -> None:
    done = answers["token"]
    assert done.returncode == 2
    assert "every user of this host can read a command line" in done.stderr
    assert "s3cret" not in done.stderr


def test_help_names_every_option(answers: Answers) -> None:
    done = answers["help"]
    assert done.returncode == 0
    assert all(option in done.stdout for option in ("--stop-timeout 25s", "--http HOST:PORT", "--token-file PATH"))


def test_a_reader_that_leaves_early_is_no_error(site: Any) -> None:
    read, write = os.pipe()
    os.close(read)  # it has left before Python has even begun
    with open(write, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, str(SITE / "manage.py"), "anarchon_jobs"],
            env=site._environment(),
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            timeout=90,
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_a_second_run_is_refused_with_the_holder_named(begun: Begun) -> None:
    site, holder = begun["holder"]
    [line] = holder.until(lambda: site.lines(job="wait"))
    done = site.manage("anarchon_run", "wait", check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"CommandError: Job 'wait' is already running on '{line['worker']}'" in done.stderr
    [active] = json.loads(site.manage("anarchon_active", "wait", "--json").stdout)
    assert (active["instance_id"], active["trigger"]) == (line["worker"], "manual")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_interrupts_the_run_and_it_is_recorded(begun: Begun, number: signal.Signals, code: int) -> None:
    site, run = begun[number.name]
    run.until(lambda: site.lines(job="wait"))
    run.send(number)
    assert run.wait() == code
    assert (
        run.told.splitlines()[-1]
        == "anarchon: wait was told to stop, and is recorded as interrupted if it heeded that."
    )
    [record] = json.loads(site.manage("anarchon_history", "wait", "--json").stdout)
    assert (record["status"], record["trigger"]) == ("interrupted", "manual")


def test_a_worker_runs_the_jobs_until_it_is_told_to_stop(begun: Begun) -> None:
    site, worker = begun["worker"]
    worker.until(lambda: len(site.lines(job="tick", what="end")) > 1)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert "of site_settings until SIGTERM or SIGINT" in worker.told
    assert "Stopped: every run has ended" in worker.told
    records = json.loads(site.manage("anarchon_history", "tick", "--json", "--limit", "1000").stdout)
    statuses = [record["status"] for record in records]
    # One that was granted in the moment of the stop has not begun, and is given back.
    assert set(statuses) <= {"success", "interrupted"}
    assert statuses.count("success") == len(site.lines(job="tick", what="end"))


def test_a_worker_whose_run_does_not_heed_the_stop_says_so(begun: Begun) -> None:
    site, worker = begun["deaf"]
    worker.until(lambda: site.lines(job="tick", what="begin"))
    worker.send(signal.SIGTERM)
    assert worker.wait() == 1
    # A run of the other job may end after that, and be told of.
    assert "CommandError: Not every run ended in time." in worker.told.splitlines()


def test_a_worker_without_jobs_has_nothing_to_do(answers: Answers) -> None:
    done = answers["jobless"]
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("CommandError: site_settings has no jobs")
