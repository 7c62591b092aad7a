"""The page that everyone sees, and who may see more."""

from anarchon import BackendError
from anarchon.contrib.django import scheduler
from django.shortcuts import render

from billing.models import Invoice


def home(request):
    """Where the invoices stand, and when each job last ran."""
    try:
        jobs = [(job, scheduler.last_run(job.name)) for job in scheduler.jobs()]
    except BackendError:
        # The jobs' store is away; the invoices are in the database.
        jobs = None
    context = {
        "invoices": Invoice.objects.count(),
        "mailed": Invoice.objects.exclude(mailed_by="").count(),
        "jobs": jobs,
    }
    return render(request, "billing/home.html", context)


def may_read(request):
    """Whether the jobs may be read as JSON: by the staff, who also have the admin's page of them."""
    return request.user.is_active and request.user.is_staff
