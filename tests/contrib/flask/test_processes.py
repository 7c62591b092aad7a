"""Apps in real processes: gunicorn, uWSGI, Flask's own server and its reloader, and the commands' exit codes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from servers import free_port

from anarchon import Scheduler, open_backend

Server = subprocess.Popen[str]
Served = Callable[[str], tuple[Any, Server]]

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(240)

SHOP = """
    import json, os, time
    from flask import Flask, current_app
    from anarchon.contrib.flask import Anarchon

    cron = Anarchon()
    VERSION = 1

    def tell(**what):
        line = json.dumps({"app": current_app.name, "pid": os.getpid(), "version": VERSION, **what})
        with open("told", "a") as file:
            file.write(line + "\\n")

    @cron.every("tick", "1s")
    def tick(ctx):
        tell(job="tick", slot=ctx.slot.isoformat(), child=os.environ.get("WERKZEUG_RUN_MAIN"))

    # Due at once, wherever a scheduler starts for the first time.
    @cron.cron("first", "@yearly", catch_up="366d", jitter=0)
    def first(ctx):
        tell(job="first", complete=current_app.config.get("COMPLETE"))

    @cron.every("fails", "365d")
    def fails():
        raise ValueError("no customers")

    @cron.every("long", "365d")
    def long(ctx):
        tell(job="long")
        ctx.signal.wait(60)
        ctx.raise_if_cancelled()

    def create_app(name="shop", backend=None):
        app = Flask(name)
        app.config.update(ANARCHON_BACKEND="sqlite:///jobs.db", ANARCHON_AUTOSTART=True)
        app.config.from_prefixed_env()
        if backend is not None:
            app.config["ANARCHON_BACKEND"] = backend
        cron.init_app(app)
        app.register_blueprint(cron.blueprint(permission=lambda request: True), url_prefix="/cron")
        # What a factory does after it, such as to give the app its database.
        time.sleep(float(os.environ.get("FACTORY_TAKES", "0")))
        app.config["COMPLETE"] = True

        @app.get("/")
        def index():
            return {"pid": os.getpid()}

        @app.cli.command()
        def linger():
            time.sleep(2)

        return app
"""


@pytest.fixture
def shop(site: Any) -> Any:
    site.write("shop.py", SHOP)
    return site


def ticks(site: Any, **facts: Any) -> list[dict[str, Any]]:
    return [line for line in site.told() if line["job"] == "tick" and facts.items() <= line.items()]


def first_runs(site: Any) -> list[bool]:
    """For each run of ``first`` whether the factory had returned."""
    return [line["complete"] for line in site.told() if line["job"] == "first"]


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def address(site: Any, server: subprocess.Popen[str], words: str = r"Listening at: (http://\S+)\s") -> str:
    return site.until(lambda: re.search(words, site.printed(server)))[1]


def check_one_run_per_slot(site: Any, reader: Scheduler, **facts: Any) -> None:
    """By what the handlers told and by the history, after the processes have ended.

    A run that met their end may have been recorded as interrupted, or not at all.
    """
    told = Counter(line["slot"] for line in ticks(site, **facts))
    succeeded = Counter(
        record.slot.isoformat() for record in reader.history("tick", 1000) if record.status == "success"
    )
    reader.stop()
    assert max(told.values()) == max(succeeded.values()) == 1, (told, succeeded)
    assert set(succeeded) <= set(told)


BOTH = """
    from werkzeug.middleware.dispatcher import DispatcherMiddleware
    from shop import create_app

    app = create_app("one", "sqlite:///one.db")
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/other": create_app("other", "sqlite:///other.db")})
"""

SCRIPT = """
    from shop import create_app

    app = create_app()

    if __name__ == "__main__":
        app.run(debug=True, port=0)
"""

UWSGI = "--master --lazy-apps --enable-threads --die-on-term --need-app --processes 2 --http-socket 127.0.0.1:0"

FACTORY = ("--workers", "2", "shop:create_app()")

#: Every way to serve, which all begin together: the command, on the site and in an environment.
SERVERS: dict[str, Callable[..., Server]] = {
    "gunicorn": lambda site, **store: site.gunicorn(*FACTORY, FACTORY_TAKES="0.5", **store),
    "gunicorn --preload": lambda site, **store: site.gunicorn("--preload", *FACTORY, FACTORY_TAKES="0.5", **store),
    "uwsgi": lambda site: site.start(
        *("-c", "import pyuwsgi; pyuwsgi.run()", *UWSGI.split(), "--module", "shop:create_app()"), FACTORY_TAKES="0.5"
    ),
    "two apps": lambda site: site.gunicorn("--workers", "2", "both:app"),
    "reloader": lambda site: site.flask("--app", "shop", "run", "--debug", "--port", "0"),
    "script": lambda site: site.start("-W", "error", "app.py", FACTORY_TAKES="0.5"),
    "flask run": lambda site: site.flask("--app", "shop", "run", "--port", "0"),
    "worker": lambda site: site.flask("--app", "shop", "anarchon", "worker", "--http", "127.0.0.1:0"),
}

#: Those whose store is not in a file of the site.
ON_REDIS = ("gunicorn", "gunicorn --preload")


@pytest.fixture(scope="module")
def lingering(site_type: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, list[Server]]]:
    """A site, and programs that import it and are there for some slots, or less; they begin with the servers."""
    shop = site_type(tmp_path_factory.mktemp("lingering"))
    shop.write("shop.py", SHOP)
    shop.write("script.py", "import time\nfrom shop import create_app\n\napp = create_app()\ntime.sleep(2)\n")
    begun = [
        shop.flask("--app", "shop", "linger"),
        shop.flask("--app", "shop", "routes"),
        shop.flask("--app", "shop", "anarchon", "jobs"),
        shop.flask("--app", "script", "shell"),
        shop.start("script.py"),
        shop.start("-c", "import script"),
    ]
    yield shop, begun
    shop.close()


@pytest.fixture(scope="module")
def served(
    site_type: Any, tmp_path_factory: pytest.TempPathFactory, redis_url: str, lingering: object
) -> Iterator[Served]:
    """The site and the server of each way."""
    prefix = f"test:{uuid.uuid4().hex}:"
    begun = {}
    try:
        for way, start in SERVERS.items():
            site = site_type(tmp_path_factory.mktemp("served"))
            for name, source in {"shop.py": SHOP, "both.py": BOTH, "app.py": SCRIPT}.items():
                site.write(name, source)
            site.prefix = f"{prefix}{way}:"
            store = {"FLASK_ANARCHON_BACKEND": redis_url, "FLASK_ANARCHON_PREFIX": site.prefix}
            begun[way] = (site, start(site, **(store if way in ON_REDIS else {})))
        yield begun.__getitem__
    finally:
        for site, _ in begun.values():
            site.close()
        with redis.Redis.from_url(redis_url, protocol=2) as client:
            for key in client.scan_iter(match=f"{prefix}*", count=1000):
                client.delete(key)


@pytest.mark.parametrize("way", ON_REDIS)
def test_gunicorns_workers_run_each_slot_once_while_they_serve(served: Served, redis_url: str, way: str) -> None:
    shop, server = served(way)
    url = address(shop, server)
    workers = set()

    def served_both() -> bool:
        workers.add(ask(url)["pid"])
        return len(ask(f"{url}/cron/jobs/tick/runs?limit=5")) >= 4 and len(workers) == 2

    shop.until(served_both)
    shop.until(lambda: first_runs(shop))
    assert shop.end(server) == 0
    assert {line["pid"] for line in shop.told()} <= workers
    assert first_runs(shop) == [True]
    check_one_run_per_slot(shop, Scheduler(open_backend(redis_url, prefix=shop.prefix)))


def test_uwsgis_workers_start_when_the_factory_has_returned(served: Served) -> None:
    shop, server = served("uwsgi")
    shop.until(lambda: len(ticks(shop)) >= 2 and first_runs(shop))
    # Not told to end: a worker that has not loaded the app yet would not hear of it.
    shop.close()
    assert server.pid not in {line["pid"] for line in shop.told()}
    assert first_runs(shop) == [True]
    check_one_run_per_slot(shop, Scheduler(f"sqlite:///{shop.home}/jobs.db"))


def test_apps_in_one_process_do_not_mix(served: Served) -> None:
    shop, server = served("two apps")
    url = address(shop, server)
    shop.until(lambda: all(len(ticks(shop, app=name)) >= 2 for name in ("one", "other")))
    for path in ("", "/other"):
        assert [job["name"] for job in ask(f"{url}{path}/cron/jobs")] == ["tick", "first", "fails", "long"]
    shop.close()
    for name in ("one", "other"):
        check_one_run_per_slot(shop, Scheduler(f"sqlite:///{shop.home}/{name}.db"), app=name)


def test_reloader_runs_jobs_in_the_child_that_serves_and_new_code_replaces_old(served: Served) -> None:
    shop, server = served("reloader")
    old = shop.until(lambda: ticks(shop, version=1))[0]
    written_at = float("-inf")

    def renewed() -> list[dict[str, Any]]:
        nonlocal written_at
        # Now and then: a reloader that has not begun to look yet takes the file for what it found.
        if time.monotonic() > written_at + 5:
            shop.write("shop.py", SHOP.replace("VERSION = 1", "VERSION = 2"))
            written_at = time.monotonic()
        return ticks(shop, version=2)

    new = shop.until(renewed)[0]
    before = len(shop.told())
    shop.until(lambda: len(shop.told()) >= before + 2)
    assert {line["version"] for line in shop.told()[before:]} == {2}
    assert len({old["pid"], new["pid"], server.pid}) == 3
    assert {line["child"] for line in ticks(shop)} == {"true"}
    shop.close()
    check_one_run_per_slot(shop, Scheduler(f"sqlite:///{shop.home}/jobs.db"))


def test_script_that_runs_its_app_in_debug_mode_runs_jobs_in_the_child_alone(served: Served) -> None:
    shop, server = served("script")
    shop.until(lambda: len(ticks(shop)) >= 2 and first_runs(shop))
    assert {line["child"] for line in ticks(shop)} == {"true"}
    assert {line["pid"] for line in shop.told()}.isdisjoint({server.pid})
    assert first_runs(shop) == [True]


def test_server_without_reloader_runs_jobs_itself(served: Served) -> None:
    shop, server = served("flask run")
    url = address(shop, server, r"Running on (http://\S+)\s")
    shop.until(lambda: len(ticks(shop)) >= 2)
    assert ask(url)["pid"] == server.pid
    assert {line["pid"] for line in ticks(shop)} == {server.pid}


def test_worker_runs_until_sigterm_and_gives_back_what_it_was_doing(served: Served) -> None:
    shop, worker = served("worker")
    url = address(shop, worker, r"at (http://\S+?)\.?\n")
    shop.until(lambda: len(ticks(shop)) >= 2)
    assert [job["name"] for job in ask(f"{url}/jobs")] == ["tick", "first", "fails", "long"]
    assert shop.end(worker) == 0
    assert "every run has ended" in shop.printed(worker)
    assert {line["pid"] for line in ticks(shop)} == {worker.pid}
    check_one_run_per_slot(shop, Scheduler(f"sqlite:///{shop.home}/jobs.db"))


def test_what_serves_no_requests_runs_no_jobs(lingering: tuple[Any, list[Server]]) -> None:
    shop, processes = lingering
    assert [process.wait(90) for process in processes] == [0] * len(processes)
    assert shop.told() == []


# -- commands


def ended(site: Any, process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code of a command, and what it printed."""
    return process.wait(90), site.printed(process)


def test_commands_end_with_the_exit_codes_of_anarchons_own(shop: Any) -> None:
    def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = shop.flask("--app", "shop", "anarchon", *arguments, **environment)
        return process

    succeeds = command("run", "tick")
    fails = command("run", "fails")
    wrong = command("history", "tick", "--limit", "0")
    misspelt = command("jobs", FLASK_ANARCHON_LEESE="5s")
    unknown = command("run", "tik")
    away = command("history", "tick", FLASK_ANARCHON_BACKEND=f"redis://127.0.0.1:{free_port()}/0")

    assert ended(shop, succeeds)[0] == 0
    code, printed = ended(shop, fails)
    assert (code, "ValueError: no customers" in printed) == (1, True)
    assert ended(shop, wrong)[0] == 2
    code, printed = ended(shop, misspelt)
    assert (code, "did you mean ANARCHON_LEASE?" in printed) == (1, True)
    code, printed = ended(shop, unknown)
    assert (code, "Did you mean 'tick'?" in printed) == (6, True)
    assert ended(shop, away)[0] == 5


def test_interrupted_run_is_recorded_and_one_beside_it_refused(shop: Any) -> None:
    command = ("--app", "shop", "anarchon", "run", "long")
    running = shop.flask(*command, FLASK_ANARCHON_INSTANCE_ID="shell")
    shop.until(lambda: [line for line in shop.told() if line["job"] == "long"])
    code, printed = ended(shop, shop.flask(*command))
    assert (code, "'shell'" in printed) == (4, True)
    assert shop.end(running, signal.SIGINT) == 130
    reader = Scheduler(f"sqlite:///{shop.home}/jobs.db")
    (record,) = reader.history("long")
    reader.stop()
    assert (record.status, record.trigger) == ("interrupted", "manual")
