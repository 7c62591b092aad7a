"""The site on real web servers that run its jobs: one run for each slot, while pages are asked for."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from anarchon import RedisBackend, Scheduler

MakeSite = Callable[..., Any]
Line = dict[str, Any]

SITE = Path(__file__).parents[1] / "django_site"

GUNICORN = (sys.executable, "-m", "gunicorn", "site_wsgi", "--bind", "127.0.0.1:0", "--workers", "4")

#: How many slots are run where it is not a minute of them, and how long a visitor stays away.
SLOTS, _PAUSE_S = 4, 0.1

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(240)

#: The three ways in which gunicorn is asked to serve.
WAYS = {
    "plain": (),
    "preload": ("--preload",),
    "max-requests": ("--max-requests", "6", "--max-requests-jitter", "12"),
}


class Served:
    """A web server of the site, and a visitor who asks it for a page again and again."""

    def __init__(self, site: Any, *command: str) -> None:
        self.site = site
        self.process = site.start(*command)
        self.pages: Counter[int] = Counter()
        self.faults: list[str] = []
        #: The newest slot that had begun when the server was told to end.
        self.until_ms = 0
        self._enough = threading.Event()
        self._visitor = threading.Thread(target=self._visit, daemon=True)

    @property
    def address(self) -> str | None:
        found = re.findall(r"(?:Listening at: |development server at )http://([\d.]+:[1-9]\d*)[/\s]", self.process.told)
        return found[-1] if found else None

    def visit(self) -> Served:
        """Returns when the first page has been answered."""
        self._visitor.start()
        self.process.until(lambda: self.pages)
        return self

    def until(self, found: Callable[[Any], Any]) -> Any:
        """Waits until something is found of the site."""
        return self.process.until(lambda: found(self.site))

    def get(self, path: str) -> Any:
        connection = http.client.HTTPConnection(str(self.process.until(lambda: self.address)), timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            assert response.status == 200, (path, response.status, body[:500])
            return json.loads(body)
        finally:
            connection.close()

    def leave(self) -> None:
        """The visitor asks for no more."""
        self._enough.set()
        if self._visitor.is_alive():
            self._visitor.join()

    def tell(self) -> None:
        """Tells the server to end, and returns at once."""
        self._note()
        self.process.send(signal.SIGTERM)

    def wait(self) -> None:
        """Waits for the end of the server, of which nothing is left then."""
        self.process.wait()
        end = time.monotonic() + 60
        with suppress(ProcessLookupError):
            while time.monotonic() < end:
                os.killpg(self.process.pid, 0)
                time.sleep(0.02)
            pytest.fail(f"Some of its processes live on.\n{self.process.told}")

    def kill(self) -> None:
        """Ends all of it at once, where the end is not what is tested: workers that come and go may not hear of it."""
        self.leave()
        self._note()
        self.process.kill()

    def _note(self) -> None:
        self.until_ms = max(line["slot_ms"] for line in of(self.site.lines(job="tick"), "begin"))

    def _visit(self) -> None:
        while not self._enough.is_set():
            try:
                self.pages[self.get("/hits")["pid"]] += 1
            except (OSError, http.client.HTTPException):
                # A worker that is about to be replaced takes no more, and a server that reloads is away for a moment.
                if self._enough.wait(_PAUSE_S):
                    return
            except BaseException as error:
                self.faults.append(repr(error))
                return
            self._enough.wait(_PAUSE_S)


def faults_of_slots(lines: list[dict[str, Any]]) -> list[str]:
    """Each slot that was run has one run, which ends once; fences grow."""
    begins = [line for line in lines if line["what"] == "begin"]
    faults = []
    for what, found in (("runs", (line for line in begins if line["attempt"] == 1)), ("ends", of(lines, "end"))):
        counts = Counter(line["slot_ms"] for line in found)
        faults += [f"{slot_ms}: {count} {what}." for slot_ms, count in counts.items() if count != 1]
    fences = [line["fence"] for line in sorted(begins, key=lambda line: (line["slot_ms"], line["attempt"]))]
    if fences != sorted(set(fences)):
        faults.append(f"The fences do not grow: {fences}.")
    return faults


def missing_slots(served: Served) -> list[int]:
    """The slots from the first to the last that nobody ran; a busy machine may be late for one, and then says so.

    The last is the newest that had begun before the end: a worker that ends gives back what it has not begun, and
    another one that takes longer to end may have a newer slot by then.
    """
    lines = served.site.lines(job="tick")
    ran = {line["slot_ms"] for line in of(lines, "begin")}
    excused = {line["slot_ms"] for line in lines if line["what"] in ("late", "overlap")}
    return [slot_ms for slot_ms in range(min(ran), served.until_ms, 1000) if slot_ms not in ran | excused]


def of(lines: list[dict[str, Any]], what: str) -> Iterator[dict[str, Any]]:
    return (line for line in lines if line["what"] == what)


def run_slots(all_served: list[Served], slots: int) -> None:
    """Waits until each site has run so many slots of ``tick``, and its visitor has had more pages than that."""
    for served in all_served:
        served.until(lambda site: len(site.lines(job="tick", what="end")) >= slots)
        served.until(lambda site, served=served: sum(served.pages.values()) > slots)


def end(all_served: list[Served]) -> None:
    """Stops the servers, all together."""
    for served in all_served:
        served.leave()
        served.tell()
    for served in all_served:
        served.wait()


@contextmanager
def serving_in_all_ways(site_type: Any, folder: Path, redis_url: str) -> Iterator[dict[str, Served]]:
    """gunicorn with four workers and Redis, in the three ways at one time."""
    prefix = f"test:{uuid.uuid4().hex}:"
    sites = {}
    try:
        for way in WAYS:
            (folder / way).mkdir()
            given = {"BACKEND": redis_url, "PREFIX": f"{prefix}{way}:", "AUTOSTART": True}
            sites[way] = site_type(folder / way, ANARCHON=given)
        yield {way: Served(sites[way], *GUNICORN, *WAYS[way]) for way in WAYS}
    finally:
        for site in sites.values():
            site.close()
        remove(redis_url, prefix)


def remove(redis_url: str, prefix: str) -> None:
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        for key in client.scan_iter(match=f"{prefix}*", count=1000):
            client.delete(key)


UWSGI = Path(sys.executable).with_name("uwsgi")

RUNSERVER = (sys.executable, "manage.py", "runserver", "--skip-checks")

#: Other servers of a site, by a name for each. They begin together, while others are waited for.
OTHERS = {
    "runserver": (*RUNSERVER, "127.0.0.1:0"),
    "runserver --noreload": (*RUNSERVER, "--noreload", "127.0.0.1:0"),
    "uwsgi": (
        *(str(UWSGI), "--http-socket", "127.0.0.1:0", "--module", "site_wsgi", "--master", "--processes", "3"),
        *("--enable-threads", "--die-on-term"),
    ),
}


@pytest.fixture(scope="module")
def others(site_type: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    sites = {}
    try:
        served = {}
        for name, command in OTHERS.items():
            if Path(command[0]).exists():
                site = sites[name] = site_type(tmp_path_factory.mktemp("other"))
                site.settings["ANARCHON"]["AUTOSTART"] = True
                # A copy, whose files may be touched.
                passed_over = shutil.ignore_patterns("__pycache__", "*.sqlite3")
                site.code = shutil.copytree(SITE, site.folder / "code", ignore=passed_over)
                served[name] = Served(site, *command)
        yield served
    finally:
        for site in sites.values():
            site.close()


@pytest.fixture(scope="module")
def hold(site_type: Any, tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Served]:
    """Four workers, one of which runs ``sync`` until there is a file ``go``."""
    folder, prefix = tmp_path_factory.mktemp("hold"), f"test:{uuid.uuid4().hex}:"
    site = site_type(folder, ANARCHON={"BACKEND": redis_url, "PREFIX": prefix, "AUTOSTART": True})
    site.environment["HOLD"] = str(folder / "go")
    try:
        yield Served(site, *GUNICORN, "--preload")
    finally:
        site.close()
        remove(redis_url, prefix)


@pytest.fixture(scope="module")
def all_ways(
    site_type: Any, tmp_path_factory: pytest.TempPathFactory, redis_url: str, request: pytest.FixtureRequest
) -> Iterator[dict[str, Served]]:
    """The three after some slots, when a worker or two of one of them have been replaced."""
    with serving_in_all_ways(site_type, tmp_path_factory.mktemp("ways"), redis_url) as all_served:
        # They begin meanwhile.
        for others in ("hold", "others"):
            request.getfixturevalue(others)
        for served in all_served.values():
            served.visit()
        recycled = all_served["max-requests"]
        recycled.until(lambda site: len(recycled.pages) > 5)
        recycled.leave()
        run_slots(list(all_served.values()), SLOTS)
        recycled.kill()
        end([served for served in all_served.values() if served is not recycled])
        yield all_served


@pytest.mark.parametrize("way", WAYS)
def test_four_workers_of_gunicorn_run_each_slot_once_while_they_serve(all_ways: dict[str, Served], way: str) -> None:
    check(all_ways[way], slots=SLOTS)
    # Where workers come and go, a busy machine may have none for a moment.
    assert way == "max-requests" or missing_slots(all_ways[way]) == []


def test_the_master_of_gunicorn_runs_no_job(all_ways: dict[str, Served]) -> None:
    for served in all_ways.values():
        assert served.process.pid not in {line.get("pid") for line in served.site.lines()}


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_four_workers_of_gunicorn_run_a_job_each_second_for_a_minute(
    site_type: Any, tmp_path: Path, redis_url: str
) -> None:
    with serving_in_all_ways(site_type, tmp_path, redis_url) as all_served:
        for served in all_served.values():
            served.visit()
        run_slots(list(all_served.values()), 60)
        end(list(all_served.values()))
        for served in all_served.values():
            check(served, slots=60)
            assert ended_in_order(served)
        missing = {way: missing_slots(served) for way, served in all_served.items()}
        # All four of those that come and go may be away for a moment, and then nobody runs a slot.
        assert len(missing.pop("max-requests")) <= 2
        assert missing == {"plain": [], "preload": []}
        assert len(all_served["max-requests"].pages) > 12, "No worker was replaced often enough."


def check(served: Served, slots: int) -> None:
    lines = served.site.lines(job="tick")
    assert faults_of_slots(lines) == []
    assert served.faults == []
    assert sum(served.pages.values()) > slots
    # Each process is an instance of its own.
    pids = {line["pid"] for line in lines if line["what"] == "begin"}
    workers = {line["worker"] for line in lines if line["what"] == "begin"}
    assert len(workers) == len(pids)


def ended_in_order(served: Served) -> bool:
    """Nothing waits for a lease to run out, and nothing was lost; a very busy machine may be too slow for that."""
    reader = reader_of(served)
    active, records = reader.active("tick"), reader.history("tick", 200)
    reader.stop()
    return active == [] and {record.status for record in records} <= {"success", "interrupted"}


def reader_of(served: Served) -> Scheduler:
    given = served.site.settings["ANARCHON"]
    return Scheduler(RedisBackend(given["BACKEND"], prefix=given["PREFIX"]))


@pytest.fixture
def held(hold: Served) -> Served:
    """The same while a worker does so; its line is the last."""
    go = hold.site.folder / "go"
    before = len(hold.site.lines(job="sync", held=True)) if go.exists() else 0
    go.unlink(missing_ok=True)
    hold.until(lambda site: len(site.lines(job="sync", held=True)) > before)
    return hold


def test_a_job_is_run_by_hand_beside_four_web_workers_and_refused_while_one_runs_it(held: Served) -> None:
    site = held.site
    begun = site.lines(job="sync", what="begin")[-1]
    refused = site.manage("anarchon_run", "sync", check=False)
    assert refused.returncode == 4
    assert f"CommandError: Job 'sync' is already running on '{begun['worker']}'" in refused.stderr
    (site.folder / "go").touch()

    def run_by_hand() -> str | None:
        # A slot may be running, for a moment.
        done = site.manage("anarchon_run", "sync", "--json", check=False)
        return done.stdout if done.returncode == 0 else None

    record = json.loads(held.process.until(run_by_hand))
    assert (record["trigger"], record["status"], record["attempt"]) == ("manual", "success", 1)
    records = json.loads(site.manage("anarchon_history", "sync", "--json").stdout)
    assert [one for one in records if one["trigger"] == "manual"] == [record]


def test_a_worker_that_is_told_to_end_hands_its_run_on(held: Served) -> None:
    reader = reader_of(held)

    def handed_on() -> tuple[Line, Line] | None:
        """Whoever holds the run is told to end: its line, and its successor's.

        On a busy machine it may not be fast enough to give the run back, or a newer slot may come due before another
        has taken it; then the next holder is told.
        """
        begun = held.site.lines(job="sync", what="begin")
        with suppress(ProcessLookupError):
            os.kill(begun[-1]["pid"], signal.SIGTERM)
        held.until(lambda site: len(site.lines(job="sync", what="begin")) > len(begun))
        last, following = held.site.lines(job="sync", what="begin")[len(begun) - 1 :][:2]
        given_back = {record.fence for record in reader.history("sync", 200) if record.status == "interrupted"}
        taken_over = last["fence"] in given_back and following["slot_ms"] == last["slot_ms"]
        return (last, following) if taken_over else None

    first, second = held.process.until(handed_on)
    reader.stop()
    assert second["attempt"] == first["attempt"] + 1
    assert first["pid"] != second["pid"]


def test_a_reload_of_runserver_goes_on_with_the_schedule_and_only_its_child_runs_jobs(
    others: dict[str, Served],
) -> None:
    served = others["runserver"].visit()
    site = served.site
    served.until(lambda site: site.lines(job="tick", what="end"))
    [first] = served.pages
    touched_at = float("-inf")

    def reloaded() -> bool:
        nonlocal touched_at
        # Now and then: a reloader that has not begun to look yet takes the file for what it found.
        if time.monotonic() > touched_at + 5:
            os.utime(site.code / "shop" / "views.py")
            touched_at = time.monotonic()
        return len(served.pages) > 1

    served.process.until(reloaded)
    # It may have been touched twice, and have reloaded twice.
    served.until(lambda site: {line["pid"] for line in site.lines(job="tick", what="end")} - {first})
    end([served])
    lines = site.lines(job="tick")
    # Between its two lives there is nobody to run a slot.
    assert faults_of_slots(lines) == []
    assert served.process.pid not in {*served.pages, *(line["pid"] for line in lines if "pid" in line)}
    assert served.faults == []


def test_runserver_without_its_reloader_runs_jobs_too(others: dict[str, Served]) -> None:
    served = others["runserver --noreload"]
    served.until(lambda site: site.lines(job="tick", what="end"))
    assert {line["pid"] for line in served.site.lines(job="tick", what="end")} == {served.process.pid}


def test_uwsgi_runs_each_slot_once(others: dict[str, Served]) -> None:
    # The extra `test` brings it; where everything must be tested, it is there.
    if not UWSGI.exists() and not os.environ.get("CI"):
        pytest.skip("There is no uwsgi beside this Python.")
    served = others["uwsgi"]
    served.until(lambda site: len(site.lines(job="tick", what="end")) > 2)
    served.kill()
    lines = served.site.lines(job="tick")
    assert faults_of_slots(lines) == []
    assert missing_slots(served) == []
    assert served.process.pid not in {line["pid"] for line in lines if line["what"] == "begin"}


COMMANDS = [
    ("migrate",),
    ("makemigrations", "--check", "--dry-run"),
    ("shell", "-c", "pass"),
    ("anarchon_run", "look"),
]


def test_no_other_command_starts_the_jobs(make_site: MakeSite) -> None:
    begun = []
    for command in COMMANDS:
        site = make_site()
        site.settings["ANARCHON"]["AUTOSTART"] = True
        begun.append(site.start(sys.executable, "-c", NAMES_OF_THREADS, *command))
    for process in begun:
        assert process.wait() == 0, process.told
        last = process.out.read_text(encoding="utf-8").splitlines()[-1]
        assert last.startswith("threads: MainThread")
        assert "anarchon-timer" not in last


NAMES_OF_THREADS = """
import os, sys, threading
from django.core.management import execute_from_command_line
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
try:
    execute_from_command_line(["manage.py", *sys.argv[1:]])
except SystemExit as end:
    assert not end.code, end.code
print("threads:", *(thread.name for thread in threading.enumerate()))
"""


def test_a_sites_own_tests_meet_what_the_docs_say_of_them(make_site: MakeSite) -> None:
    site = make_site(ANARCHON={"BACKEND": "memory://", "AUTOSTART": True})
    done = site.manage("test", "shop")
    assert done.stderr.splitlines()[-2:] == ["OK", "Destroying test database for alias 'default'..."]
