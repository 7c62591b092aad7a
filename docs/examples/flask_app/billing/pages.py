"""What people see: where the invoices stand, and when each job last ran."""

from __future__ import annotations

from flask import Blueprint, render_template

from billing import books
from billing.jobs import cron

blueprint = Blueprint("pages", __name__)


@blueprint.get("/")
def home() -> str:
    scheduler = cron.scheduler
    jobs = [(job, scheduler.last_run(job.name)) for job in scheduler.jobs()]
    return render_template("home.html", summary=books.summary(), jobs=jobs)
