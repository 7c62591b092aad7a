"""The Flask extension as its users write it, for ``mypy --strict``: nothing here is run."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, Flask, Request
from typing_extensions import assert_type

from anarchon import Event, JobInfo, RunContext, RunRecord, Scheduler
from anarchon.contrib.flask import Anarchon

app = Flask(__name__)
cron = Anarchon()
assert_type(Anarchon(app), Anarchon)
cron.init_app(app)


@cron.every("sync", "10s", timeout="10m")
def sync(ctx: RunContext) -> int:
    return 42


@cron.cron("digest", "0 0 8 * * *", seconds=True)
def digest() -> None: ...


@cron.on("failure")
def complain(event: Event) -> None: ...


takes_context: Callable[[RunContext], int] = sync
takes_nothing: Callable[[], None] = digest
takes_event: Callable[[Event], None] = complain
assert_type(cron.every("a", "1s", sync).cron("b", "@daily", digest).on("failure", complain), Anarchon)

cron.every("c", "1s", time_out="10m")  # type: ignore[call-overload]
cron.every("d", "1s", 42)  # type: ignore[call-overload]


def may(request: Request) -> bool:
    return request.remote_addr == "127.0.0.1"


assert_type(cron.blueprint(), Blueprint)
app.register_blueprint(cron.blueprint(permission=may), url_prefix="/cron")
cron.blueprint(permission=lambda: True)  # type: ignore[arg-type, misc]

with app.app_context():
    assert_type(cron.scheduler, Scheduler)
    assert_type(cron.jobs(), list[JobInfo])
    assert_type(cron.run_now("sync"), RunRecord)
    assert_type(cron.run_now("sync", wait="5s"), RunRecord | None)
    assert_type(cron.history("sync", limit=3), list[RunRecord])
    assert_type(cron.last_run("sync"), RunRecord | None)
